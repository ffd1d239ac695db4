// The store of ranks that are threads of one process.
#include <condition_variable>
#include <map>
#include <mutex>

#include "common/error.h"
#include "common/store/store.h"

namespace tandem {
namespace {

class MemoryStore final : public Store {
  public:
    void set(const std::string& key, const std::string& value) override {
        const std::lock_guard lock(mutex_);
        values_[key] = value;
        changed_.notify_all();
    }

    std::string get(const std::string& key, Deadline deadline) override {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_until(lock, deadline.at(), [&] { return values_.contains(key); })) {
            throw DeadlineExceeded("memory store", "get", "nobody has set '" + key + "'");
        }
        return values_[key];
    }

    std::int64_t add(const std::string& key, std::int64_t amount) override {
        const std::lock_guard lock(mutex_);
        std::string& value = values_[key];
        const std::int64_t sum = parse_store_integer(key, value) + amount;
        value = std::to_string(sum);
        changed_.notify_all();
        return sum;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
};

}  // namespace

std::int64_t parse_store_integer(const std::string& key, const std::string& value) {
    if (value.empty()) return 0;
    try {
        std::size_t used = 0;
        const std::int64_t number = std::stoll(value, &used);
        if (used == value.size()) return number;
    } catch (const std::exception&) {
        // falls through to the error below, which names the key
    }
    throw InvalidArgument("store: cannot add to '" + key + "', which is not an integer");
}

std::shared_ptr<Store> make_memory_store() {
    return std::make_shared<MemoryStore>();
}

}  // namespace tandem
