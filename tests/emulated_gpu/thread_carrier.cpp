// Ranks that are threads of one process: a message is its address, which the receiver copies from.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "tests/emulated_gpu/carrier.h"

namespace tandem::comm::nccl::stand_in {
namespace {

struct Message {
    const std::byte* from = nullptr;
    bool taken = false;
};

using Lane = std::tuple<int, int, int>;  // from, to, number of the collective

// The ranks that have one id.
struct Group {
    std::mutex mutex;
    std::condition_variable changed;
    int joined = 0;
    std::map<Lane, std::deque<std::shared_ptr<Message>>> mail;
};

std::shared_ptr<Group> group_of(const std::string& id) {
    static std::mutex mutex;
    static std::map<std::string, std::shared_ptr<Group>> groups;
    const std::lock_guard lock(mutex);
    auto& group = groups[id];
    if (!group) group = std::make_shared<Group>();
    return group;
}

class Threads final : public Carrier {
  public:
    Threads(const std::string& id, int rank, int size) : group_(group_of(id)), rank_(rank), size_(size) {
        const std::lock_guard lock(group_->mutex);
        ++group_->joined;
    }

    bool joined() override {
        const std::lock_guard lock(group_->mutex);
        return group_->joined == size_;
    }

    bool move(const std::vector<Transfer>& transfers) override {
        std::vector<std::shared_ptr<Message>> sent;
        for (const Transfer& transfer : transfers) {
            if (transfer.sending) sent.push_back(post(transfer));
        }
        for (const Transfer& transfer : transfers) {
            if (!transfer.sending && !take(transfer)) return false;
        }
        for (const auto& message : sent) {
            std::unique_lock lock(group_->mutex);
            if (!wait(lock, [&] { return message->taken; })) return false;
        }
        return true;
    }

    void abort() override {
        aborted_ = true;
        group_->changed.notify_all();
    }

  private:
    std::shared_ptr<Message> post(const Transfer& transfer) {
        auto message = std::make_shared<Message>();
        message->from = transfer.data;
        const std::lock_guard lock(group_->mutex);
        group_->mail[{rank_, transfer.peer, transfer.collective}].push_back(message);
        group_->changed.notify_all();
        return message;
    }

    bool take(const Transfer& transfer) {
        std::unique_lock lock(group_->mutex);
        const Lane lane{transfer.peer, rank_, transfer.collective};
        auto& queue = group_->mail[lane];
        if (!wait(lock, [&] { return !queue.empty(); })) return false;
        if (transfer.bytes > 0) std::memcpy(transfer.data, queue.front()->from, transfer.bytes);
        queue.front()->taken = true;
        queue.pop_front();
        if (transfer.collective != 0) group_->mail.erase(lane);
        group_->changed.notify_all();
        return true;
    }

    template <typename Ready>
    bool wait(std::unique_lock<std::mutex>& lock, const Ready& ready) {
        while (!ready() && !aborted_) group_->changed.wait_for(lock, std::chrono::milliseconds(5));
        return !aborted_;
    }

    std::shared_ptr<Group> group_;
    const int rank_;
    const int size_;
    std::atomic<bool> aborted_{false};
};

}  // namespace

std::shared_ptr<Carrier> over_threads(const std::string& id, int rank, int size) {
    return std::make_shared<Threads>(id, rank, size);
}

}  // namespace tandem::comm::nccl::stand_in
