// A worker of checkpoint-engine, on libzmq, in a thread: what it does is a test's.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine_adapter/checkpoint_engine/request_socket.h"
#include "engine_adapter/checkpoint_engine/zmq_api.h"
#include "tests/support/unpickle.h"

namespace tandem::engine::checkpoint_engine {

class Worker {
  public:
    // The answer to a message, or none: it leaves.
    using Answer = std::function<std::optional<std::string>(const nlohmann::json& message)>;

    Worker(const std::string& address, Answer answer)
        : thread_([this, address, answer = std::move(answer)] { run(address, answer); }) {}
    ~Worker() { join(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // Waits for its end, and gives what it was told.
    const std::vector<nlohmann::json>& join() {
        if (thread_.joinable()) thread_.join();
        return heard_;
    }

    // checkpoint-engine 0.1.2 leaves at the first None, 0.4.2 at the second; both at an exception, which 0.4.2 answers
    // where it is the first message, to leave at the next.
    static Answer of_version(bool newer) {
        return [newer, nones = 0,
                messages = 0](const nlohmann::json& message) mutable -> std::optional<std::string> {
            const bool first = messages++ == 0;
            if (is_failure(message))
                return newer && first ? std::optional<std::string>("AssertionError") : std::nullopt;
            nones += message.is_null() ? 1 : 0;
            return nones == (newer ? 2 : 1) ? "last" : "";
        };
    }
    static bool is_failure(const nlohmann::json& message) {
        return message.is_object() && message.value("call", "") == "builtins.RuntimeError";
    }

  private:
    void run(const std::string& address, Answer answer) {
        const zmq::Api& api = zmq::loaded();
        const zmq::Context context;
        void* socket = api.socket(context.get(), zmq::kRep);
        api.connect(socket, address.c_str());
        while (true) {
            zmq::PollItem item{socket, 0, zmq::kPollIn, 0};
            if (api.poll(&item, 1, 20'000) <= 0) break;  // the test has forgotten it
            std::string bytes(1 << 20, '\0');
            bytes.resize(static_cast<std::size_t>(api.recv(socket, bytes.data(), bytes.size(), 0)));
            heard_.push_back(test::unpickle(bytes));
            const auto said = answer(heard_.back());
            if (!said) break;
            const bool last = *said == "last";
            api.send(socket, said->data(), last ? 0 : said->size(), 0);
            if (last) break;
        }
        api.close(socket);
    }

    std::vector<nlohmann::json> heard_;
    std::thread thread_;
};

}  // namespace tandem::engine::checkpoint_engine
