#include "engine_adapter/torch_store/session.h"

#include <utility>

#include "common/error.h"

namespace tandem::engine::torch_store {
namespace {

// Those after which a client knows a key's value, or that it was set. CHECK is not among them: PyTorch asks it for keys of
// no group's, and its answer is "not there" for those.
bool tells(Operation operation) {
    switch (operation) {
        case Operation::get:
        case Operation::multi_get:
        case Operation::compare_set:
        case Operation::wait:
        case Operation::barrier:
        case Operation::queue_pop:
        case Operation::queue_len:
        case Operation::list_keys:
            return true;
        default:
            return false;
    }
}

}  // namespace

Session::Session(Keys& keys, std::function<void()> woken, std::string secret)
    : keys_(keys),
      secret_(std::move(secret)),
      charge_(keys.budget()),
      waiter_(keys, true, [this, woken = std::move(woken)] {
          say(kStopWaiting);
          woken();
      }) {}

void Session::account() {
    charge_.set(reader_.bytes() + out_.size() + sending_.size());
}

void Session::feed(std::string_view bytes) {
    charge_.set(reader_.bytes() + bytes.size() + out_.size() + sending_.size());
    reader_.feed(bytes);
}

bool Session::work() {
    bool worked = false;
    while (out_.empty()) {
        auto request = reader_.next();
        if (!request) break;
        if (!validated_ && request->operation != Operation::validate)
            throw ProtocolError("a client that does not say PyTorch's magic number first");
        if (waiter_.waits() && request->operation != Operation::cancel_wait)
            throw ProtocolError("a client asks for something while it waits");
        require_secret(*request);
        answer(std::move(*request));
        worked = true;
    }
    account();
    return worked;
}

std::string_view Session::answers() {
    if (sending_.empty()) sending_ = std::exchange(out_, {});
    return sending_;
}

void Session::sent() {
    sending_ = {};
    account();
}

void Session::require_secret(const Request& request) {
    if (secret_.empty() || !tells(request.operation)) return;
    if (request.operation == Operation::list_keys) throw ProtocolError("a client asks which keys there are");
    const std::size_t keys = request.operation == Operation::compare_set ? 1 : request.texts.size();
    for (std::size_t i = 0; i < keys; ++i) {
        if (request.texts[i].find(secret_) == std::string::npos)
            throw ProtocolError("a client asks for a key that is not of this group's");
    }
    knows_secret_ = knows_secret_ || keys > 0;
}

// Counts at once: a request may ask for more than there is memory.
void Session::say_text(std::string_view text) {
    charge_.set(reader_.bytes() + out_.size() + sending_.size() + text.size());
    put_text(out_, text);
}

void Session::answer(Request request) {
    auto& texts = request.texts;
    switch (request.operation) {
        case Operation::validate:
            if (request.number != kMagic) throw ProtocolError("a client with another magic number");
            validated_ = true;
            return;
        case Operation::ping:
            return say(static_cast<std::uint32_t>(request.number));
        case Operation::set:
            return keys_.set(texts[0], std::move(texts[1]));
        case Operation::append:
            return keys_.append(texts[0], texts[1]);
        case Operation::compare_set:
            return say_text(keys_.compare_set(texts[0], texts[1], std::move(texts[2])));
        case Operation::add:
            return say(keys_.add(texts[0], request.number));
        case Operation::delete_key:
            return say<std::int64_t>(keys_.erase(texts[0]) ? 1 : 0);
        case Operation::multi_set:
            for (std::size_t i = 0; i < texts.size(); i += 2) keys_.set(texts[i], std::move(texts[i + 1]));
            return;
        case Operation::wait:
            if (keys_.wait(waiter_, texts)) say(kStopWaiting);
            return;
        case Operation::barrier:
            if (keys_.barrier(waiter_, texts[0], request.number)) say(kStopWaiting);
            return;
        case Operation::cancel_wait:
            waiter_.cancel();
            return say(kWaitCanceled);
        case Operation::get:
        case Operation::multi_get:
        case Operation::check:
        case Operation::get_num_keys:
        case Operation::list_keys:
            return answer_keys(request);
        case Operation::queue_push:
        case Operation::queue_pop:
        case Operation::queue_len:
            return answer_queue(std::move(request));
    }
}

void Session::answer_keys(const Request& request) {
    if (request.operation == Operation::get_num_keys) return say(static_cast<std::int64_t>(keys_.size()));
    if (request.operation == Operation::list_keys) {
        const auto names = keys_.names();
        say(static_cast<std::int64_t>(names.size()));
        for (const std::string& name : names) say_text(name);
        return;
    }
    if (request.operation == Operation::check) {
        for (const std::string& key : request.texts) {
            if (!keys_.has(key)) return say(kNotReady);
        }
        return say(kReady);
    }
    for (const std::string& key : request.texts) {
        const std::string* value = keys_.find(key);
        say_text(value == nullptr ? std::string_view() : *value);
    }
}

void Session::answer_queue(Request request) {
    auto& texts = request.texts;
    if (request.operation == Operation::queue_push) return keys_.push(texts[0], std::move(texts[1]));
    say(static_cast<std::int64_t>(keys_.queued(texts[0])));
    if (request.operation == Operation::queue_len) return;
    if (const auto value = keys_.pop(texts[0])) say_text(*value);
}

}  // namespace tandem::engine::torch_store
