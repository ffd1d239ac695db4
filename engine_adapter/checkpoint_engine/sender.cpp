#include "engine_adapter/checkpoint_engine/sender.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "common/printable.h"
#include "engine_adapter/checkpoint_engine/dismissal.h"
#include "engine_adapter/checkpoint_engine/messages.h"
#include "engine_adapter/checkpoint_engine/socket_folder.h"

namespace tandem::engine::checkpoint_engine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenChecks{50};
constexpr milliseconds kToGiveUp{2000};

// Of a Python traceback: what was raised.
std::string last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of(" \n\r\t");
    if (end == std::string::npos) return text;
    const std::size_t before = text.find_last_of('\n', end);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return text.substr(begin, end + 1 - begin);
}

}  // namespace

struct Sender::Worker {
    std::size_t index;
    std::string device;
    zmq::RequestSocket socket;
    bool answered = false;  // a message
};

Sender::Sender(SenderOptions options) : options_(std::move(options)) {
    require(!options_.devices.empty() && options_.call_returned != nullptr,
            "a sender needs a device at least, and the server's call");
    folder_ = std::make_unique<SocketFolder>(options_.folder, options_.server, options_.devices.size());
    for (const std::string& device : options_.devices) {
        const std::size_t index = workers_.size();
        workers_.push_back(std::unique_ptr<Worker>(
            new Worker{index, device, zmq::RequestSocket(context_, folder_->socket_file(index))}));
        require(handles_.emplace(device, workers_.back()->socket.address()).second, "two workers on {}",
                device);
    }
}

Sender::~Sender() {
    if (!over_) give_up("the sender has given up");
}

void Sender::open(std::span<const TorchCudaMemory> memory, Deadline deadline) {
    require(memory.size() == workers_.size(), "{} buffers for {} workers", memory.size(), workers_.size());
    buffer_bytes_ = memory.front().bytes;
    for (const TorchCudaMemory& one : memory)
        require(one.bytes == buffer_bytes_, "buffers of {} and {} bytes", buffer_bytes_, one.bytes);
    ask(
        "opening the buffer", [&](std::size_t worker) { return buffer_message(memory[worker]); }, deadline);
}

void Sender::load(std::span<const BucketTensor> tensors, Deadline deadline) {
    const std::string message = bucket_message(tensors, buffer_bytes_);
    ask(
        fmt::format("loading bucket {}", loads_++), [&](std::size_t) { return message; }, deadline);
}

void Sender::end(Deadline deadline) {
    const auto message = [](std::size_t) { return end_message(); };
    ask("ending the load", message, deadline);
    ask("ending the load", message, deadline, true);
    over_ = true;
    for (const auto& worker : workers_) folder_->told(worker->index);
}

void Sender::ask(const std::string& phase, const Message& message, Deadline deadline, bool last) {
    require(!over_, "the sender to {} is over", options_.server);
    try {
        std::vector<Worker*> open;
        for (const auto& worker : workers_) open.push_back(worker.get());
        std::vector<bool> sent(workers_.size());
        while (true) {
            std::erase_if(open, [&](Worker* worker) {
                if (!sent[worker->index])
                    sent[worker->index] = worker->socket.try_send(message(worker->index));
                if (!sent[worker->index]) return false;
                const auto answer = worker->socket.try_receive();
                if (!answer) return false;
                worker->answered = true;
                check_answer(*worker, phase, *answer);
                return true;
            });
            if (open.empty()) return;
            const Worker& first = *open.front();
            if (options_.call_returned()) {
                if (last) return;
                throw TransportError(name_of(first), phase, "the server's call has returned before its end");
            }
            if (deadline.passed()) {
                throw DeadlineExceeded(name_of(first), phase,
                                       sent[first.index] ? "no answer before the deadline"
                                                         : "it has not connected before the deadline");
            }
            std::vector<zmq::RequestSocket*> sockets;
            for (Worker* worker : open) sockets.push_back(&worker->socket);
            zmq::RequestSocket::wait_any(
                sockets, std::min(kBetweenChecks, std::chrono::ceil<milliseconds>(deadline.left())));
        }
    } catch (const std::exception& error) {
        give_up(error.what());
        throw;
    }
}

void Sender::check_answer(const Worker& worker, const std::string& phase, const std::string& answer) const {
    if (answer.empty()) return;
    log_info("{}, {}, {}:\n{}", options_.server, worker.device, phase, printable(answer));
    throw TransportError(name_of(worker), phase, printable(last_line(answer)));
}

std::string Sender::name_of(const Worker& worker) const {
    return fmt::format("{}'s worker on {}", options_.server, worker.device);
}

bool Sender::call_is_over() const noexcept try { return options_.call_returned(); } catch (...) {
    return true;
}

// One that owes an answer can be told only behind it.
void Sender::give_up(const std::string& why) noexcept try {
    over_ = true;
    const std::string message = failure_message(why);
    const Deadline deadline = Deadline::after(kToGiveUp);
    std::vector<Dismissal> dismissals;
    for (const auto& worker : workers_) dismissals.emplace_back(worker->socket, worker->answered);
    while (true) {
        std::vector<zmq::RequestSocket*> left;
        for (Dismissal& one : dismissals) {
            if (!one.step(message)) left.push_back(&one.socket());
        }
        if (left.empty() || deadline.passed() || call_is_over()) break;
        zmq::RequestSocket::wait_any(left, kBetweenChecks);
    }
    // The call ends with its worker; of several, another may still wait.
    const bool alone = workers_.size() == 1 && call_is_over();
    for (const auto& worker : workers_) {
        if (alone || dismissals[worker->index].told()) folder_->told(worker->index);
    }
} catch (const std::exception& error) {
    log_warn("{}: {}", options_.server, error.what());
}

}  // namespace tandem::engine::checkpoint_engine
