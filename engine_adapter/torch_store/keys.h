// What a torch store keeps, and who waits for it. All memory that clients make it take counts against one limit. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::engine::torch_store {

// A limit of bytes, and how many are taken.
class Budget {
  public:
    explicit Budget(std::size_t limit) : limit_(limit) {}
    void change(std::size_t from,
                std::size_t to);  // throws ProtocolError over the limit, and changes nothing
    std::size_t used() const { return used_; }

  private:
    const std::size_t limit_;
    std::size_t used_ = 0;
};

// A part of a budget; given back at its end.
class Charge {
  public:
    explicit Charge(Budget& budget) : budget_(budget) {}
    ~Charge() { set(0); }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;
    void set(std::size_t bytes) {  // throws as Budget::change
        budget_.change(bytes_, bytes);
        bytes_ = bytes;
    }

  private:
    Budget& budget_;
    std::size_t bytes_ = 0;
};

class Keys;

// Who waits for keys, or at a barrier. Must not be moved; stops waiting at its end, before Keys ends.
class Waiter {
  public:
    // `arrived` is called, once, when there is nothing left to wait for. It must not throw or change keys.
    Waiter(Keys& keys, bool client, std::function<void()> arrived);
    ~Waiter() { cancel(); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    bool waits() const { return !missing_.empty(); }
    bool client() const { return client_; }
    void cancel() noexcept;

  private:
    friend class Keys;
    Keys& keys_;
    const bool client_;  // of the store, not the process that has it
    const std::function<void()> arrived_;
    std::set<std::string> missing_;
    bool barrier_ = false;
    Charge charge_;
};

// Whatever takes memory throws ProtocolError where there is none left, and changes nothing.
class Keys {
  public:
    explicit Keys(std::size_t max_bytes) : budget_(max_bytes) {}

    Budget& budget() { return budget_; }

    void set(const std::string& key, std::string value);
    void append(const std::string& key, const std::string& value);
    // The value afterwards: `desired` where the value was `expected`, or the key absent and `expected` empty.
    std::string compare_set(const std::string& key, const std::string& expected, std::string desired);
    // Throws ProtocolError: the value is no number, or the sum has more than 64 bits.
    std::int64_t add(const std::string& key, std::int64_t amount);
    bool erase(const std::string& key);
    const std::string* find(const std::string& key) const;  // null: absent
    std::size_t size() const { return values_.size(); }
    std::vector<std::string> names() const;

    void push(const std::string& key, std::string value);
    std::optional<std::string> pop(const std::string& key);
    std::size_t queued(const std::string& key) const;
    std::size_t queues() const { return queues_.size(); }  // with something in them

    bool has(const std::string& key) const { return values_.contains(key) || queued(key) > 0; }
    // True: they are all there. Otherwise `waiter` waits for those that are not.
    bool wait(Waiter& waiter, const std::vector<std::string>& keys);
    // True: `size` have come to the barrier, and those who wait there go on. Otherwise `waiter` waits.
    bool barrier(Waiter& waiter, const std::string& key, std::int64_t size);

    std::set<std::string> awaited() const;  // by clients, at barriers or not

  private:
    friend class Waiter;
    using Waiters = std::map<std::string, std::list<Waiter*>>;

    void enter(Waiter& waiter, const std::set<std::string>& keys, bool barrier);
    void wake(Waiters& all, const std::string& key);
    void wake_one(const std::string& key);
    static bool arrive(Waiter& waiter, const std::string& key);  // true: at all of its keys

    Budget budget_;
    std::map<std::string, std::string> values_;
    std::map<std::string, std::deque<std::string>> queues_;  // none is empty
    Waiters waiting_, at_barriers_;
};

}  // namespace tandem::engine::torch_store
