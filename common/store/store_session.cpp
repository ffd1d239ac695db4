#include "common/store/store_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/error.h"
#include "common/store/store.h"

namespace tandem {
namespace {

constexpr std::size_t kRoomKept = std::size_t{64} << 10;  // of a buffer that is empty

}  // namespace

bool StoreValues::take(std::size_t bytes) {
    if (bytes > max_bytes_ - std::min(used_, max_bytes_)) return false;
    used_ += bytes;
    return true;
}

bool StoreValues::set(const std::string& key, std::string value) {
    const auto found = values_.find(key);
    const std::size_t before = found == values_.end() ? 0 : found->second.size();
    const std::size_t place = found == values_.end() ? kEntry + key.size() : 0;
    if (!take(place + value.size())) return false;
    values_[key] = std::move(value);
    give_back(before);
    return true;
}

const std::string* StoreValues::find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

StoreSession::StoreSession(StoreValues& values, const JobSecret* secret, const Nonce& nonce)
    : values_(values), secret_(secret), nonce_(nonce), accepted_(secret == nullptr) {}

StoreSession::~StoreSession() {
    values_.give_back(charged_in_ + charged_out_);
}

std::string StoreSession::greeting() const {
    std::string text(wire::kMagic);
    text += static_cast<char>(secret_ == nullptr ? wire::Mode::open : wire::Mode::secret);
    text.append(nonce_.begin(), nonce_.end());
    return text;
}

void StoreSession::charge(std::size_t& charged, std::size_t bytes) {
    values_.give_back(std::exchange(charged, 0));
    if (!values_.take(bytes)) throw ProtocolError("the store is full");
    charged = bytes;
}

void StoreSession::feed(std::string_view bytes) {
    in_.erase(0, std::exchange(at_, 0));
    charge(charged_in_, in_.size() + bytes.size());
    in_.append(bytes);
}

void StoreSession::consume(std::size_t bytes) {
    at_ += bytes;
    if (at_ < in_.size()) return;
    in_.clear();
    if (in_.capacity() > kRoomKept) in_.shrink_to_fit();
    at_ = 0;
    charge(charged_in_, 0);
}

std::optional<std::string_view> StoreSession::next() {
    out_.clear();
    if (out_.capacity() > kRoomKept) out_.shrink_to_fit();
    charge(charged_out_, 0);
    return accepted_ ? answer() : verdict();
}

std::optional<std::string_view> StoreSession::verdict() {
    if (rest().size() < wire::kProof) return std::nullopt;
    Nonce client;
    Proof proof;
    std::memcpy(client.data(), rest().data(), client.size());
    std::memcpy(proof.data(), rest().data() + client.size(), proof.size());
    consume(wire::kProof);
    accepted_ = secret_->holds(proof, "client", nonce_, client);
    ending_ = !accepted_;
    Proof own{};
    if (accepted_) own = secret_->prove("server", nonce_, client);
    out_ += static_cast<char>(accepted_ ? wire::Status::ok : wire::Status::refused);
    out_.append(own.begin(), own.end());
    return out_;
}

std::optional<std::string_view> StoreSession::answer() {
    if (rest().size() < wire::kRequestHeader) return std::nullopt;
    const auto* header = reinterpret_cast<const unsigned char*>(rest().data());
    const auto operation = static_cast<wire::Operation>(header[0]);
    const std::uint32_t key_bytes = wire::get_u32(header + 1);
    const std::uint32_t value_bytes = wire::get_u32(header + 5);
    if (key_bytes > wire::kMaxKey || value_bytes > wire::kMaxValue) {
        throw ProtocolError(
            fmt::format("a request with a key of {} bytes and a value of {}; {} and {} are possible",
                        key_bytes, value_bytes, wire::kMaxKey, wire::kMaxValue));
    }
    const std::size_t all = wire::kRequestHeader + key_bytes + value_bytes;
    if (rest().size() < all) return std::nullopt;
    const std::string key(rest().substr(wire::kRequestHeader, key_bytes));
    std::string value(rest().substr(wire::kRequestHeader + key_bytes, value_bytes));
    consume(all);
    switch (operation) {
        case wire::Operation::set:
            if (values_.set(key, std::move(value))) return say(wire::Status::ok, "");
            return say(wire::Status::refused, "store: it is full");
        case wire::Operation::get: {
            const std::string* found = values_.find(key);
            return found == nullptr ? say(wire::Status::absent, "") : say(wire::Status::ok, *found);
        }
        case wire::Operation::add:
            return add(key, value);
    }
    return say(wire::Status::refused, "store: unknown operation");
}

std::string_view StoreSession::add(const std::string& key, const std::string& value) {
    try {
        const std::string* old = values_.find(key);
        std::int64_t sum = parse_store_integer(key, old == nullptr ? "" : *old);
        if (__builtin_add_overflow(sum, parse_store_integer(key, value), &sum))
            return say(wire::Status::refused, "store: the sum does not fit into 64 bits");
        const std::string text = std::to_string(sum);
        if (!values_.set(key, text)) return say(wire::Status::refused, "store: it is full");
        return say(wire::Status::ok, text);
    } catch (const InvalidArgument& error) {
        return say(wire::Status::refused, error.what());
    }
}

std::string_view StoreSession::say(wire::Status status, std::string_view value) {
    charge(charged_out_, wire::kAnswerHeader + value.size());
    unsigned char header[wire::kAnswerHeader];
    header[0] = static_cast<unsigned char>(status);
    wire::put_u32(header + 1, static_cast<std::uint32_t>(value.size()));
    out_.assign(reinterpret_cast<const char*>(header), sizeof(header));
    out_.append(value);
    return out_;
}

}  // namespace tandem
