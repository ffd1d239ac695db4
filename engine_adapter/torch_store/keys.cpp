#include "engine_adapter/torch_store/keys.h"

#include <charconv>
#include <utility>

#include "common/error.h"

namespace tandem::engine::torch_store {
namespace {

constexpr std::size_t kEntry = 256;  // bytes of a key's, an element's or a waiter's place, at most

std::size_t bytes_of(const std::string& key, const std::string& value) {
    return kEntry + key.size() + value.size();
}

std::int64_t parse(const std::string& key, const std::string& value) {
    std::int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc{} || stop != end)
        throw ProtocolError(fmt::format("the value of '{}' in the torch store is no number", key));
    return number;
}

}  // namespace

void Budget::change(std::size_t from, std::size_t to) {
    if (to > from && to - from > limit_ - used_)
        throw ProtocolError(fmt::format("the torch store is full, with {} of {} bytes", used_, limit_));
    used_ = used_ - from + to;
}

Waiter::Waiter(Keys& keys, bool client, std::function<void()> arrived)
    : keys_(keys), client_(client), arrived_(std::move(arrived)), charge_(keys.budget()) {}

void Waiter::cancel() noexcept {
    auto& all = barrier_ ? keys_.at_barriers_ : keys_.waiting_;
    for (const std::string& key : missing_) {
        const auto found = all.find(key);
        found->second.remove(this);
        if (found->second.empty()) all.erase(found);
    }
    missing_.clear();
    charge_.set(0);
}

void Keys::set(const std::string& key, std::string value) {
    const auto found = values_.find(key);
    budget_.change(found == values_.end() ? 0 : bytes_of(key, found->second), bytes_of(key, value));
    values_[key] = std::move(value);
    wake(waiting_, key);
}

void Keys::append(const std::string& key, const std::string& value) {
    const std::string* before = find(key);
    set(key, before == nullptr ? value : *before + value);
}

std::string Keys::compare_set(const std::string& key, const std::string& expected, std::string desired) {
    const std::string* value = find(key);
    if (value == nullptr && !expected.empty()) return expected;
    if (value != nullptr && *value != expected) return *value;
    set(key, desired);
    return desired;
}

std::int64_t Keys::add(const std::string& key, std::int64_t amount) {
    const std::string* before = find(key);
    std::int64_t sum = before == nullptr ? 0 : parse(key, *before);
    if (__builtin_add_overflow(sum, amount, &sum))
        throw ProtocolError(fmt::format("the sum at '{}' in the torch store has more than 64 bits", key));
    set(key, std::to_string(sum));
    return sum;
}

bool Keys::erase(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    budget_.change(bytes_of(key, found->second), 0);
    values_.erase(found);
    return true;
}

const std::string* Keys::find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::string> Keys::names() const {
    std::vector<std::string> names;
    names.reserve(values_.size());
    for (const auto& [key, value] : values_) names.push_back(key);
    return names;
}

void Keys::push(const std::string& key, std::string value) {
    budget_.change(0, bytes_of(key, value));
    queues_[key].push_back(std::move(value));
    wake_one(key);
}

std::optional<std::string> Keys::pop(const std::string& key) {
    const auto found = queues_.find(key);
    if (found == queues_.end()) return std::nullopt;
    std::string value = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) queues_.erase(found);
    budget_.change(bytes_of(key, value), 0);
    return value;
}

std::size_t Keys::queued(const std::string& key) const {
    const auto found = queues_.find(key);
    return found == queues_.end() ? 0 : found->second.size();
}

bool Keys::wait(Waiter& waiter, const std::vector<std::string>& keys) {
    std::set<std::string> missing;
    for (const std::string& key : keys) {
        if (!has(key)) missing.insert(key);
    }
    if (missing.empty()) return true;
    enter(waiter, missing, false);
    return false;
}

bool Keys::barrier(Waiter& waiter, const std::string& key, std::int64_t size) {
    if (add(key, 1) >= size) {
        wake(at_barriers_, key);
        return true;
    }
    enter(waiter, {key}, true);
    return false;
}

void Keys::enter(Waiter& waiter, const std::set<std::string>& keys, bool barrier) {
    require(!waiter.waits(), "a waiter at the torch store waits for one thing at a time");
    std::size_t bytes = 0;
    for (const std::string& key : keys) bytes += bytes_of(key, key);
    waiter.charge_.set(bytes);
    waiter.barrier_ = barrier;
    for (const std::string& key : keys) (barrier ? at_barriers_ : waiting_)[key].push_back(&waiter);
    waiter.missing_ = keys;
}

bool Keys::arrive(Waiter& waiter, const std::string& key) {
    waiter.missing_.erase(key);
    if (waiter.waits()) return false;
    waiter.charge_.set(0);
    waiter.arrived_();
    return true;
}

void Keys::wake(Waiters& all, const std::string& key) {
    const auto found = all.extract(key);
    if (found.empty()) return;
    for (Waiter* waiter : found.mapped()) arrive(*waiter, key);
}

// What was pushed is for one: the longest there.
void Keys::wake_one(const std::string& key) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) return;
    auto& list = found->second;
    while (!list.empty()) {
        Waiter& first = *list.front();
        list.pop_front();
        if (arrive(first, key)) break;
    }
    if (list.empty()) waiting_.erase(found);
}

std::set<std::string> Keys::awaited() const {
    std::set<std::string> keys;
    for (const Waiters* all : {&waiting_, &at_barriers_}) {
        for (const auto& [key, waiters] : *all) {
            for (const Waiter* waiter : waiters) {
                if (waiter->client()) keys.insert(key);
            }
        }
    }
    return keys;
}

}  // namespace tandem::engine::torch_store
