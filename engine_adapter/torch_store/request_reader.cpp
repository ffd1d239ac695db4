#include "engine_adapter/torch_store/request_reader.h"

#include <cstring>
#include <utility>

#include "common/error.h"

namespace tandem::engine::torch_store {
namespace {

constexpr std::size_t kRoomKept = std::size_t{64} << 10;  // of a buffer that is empty

}  // namespace

void RequestReader::feed(std::string_view bytes) {
    in_.erase(0, std::exchange(at_, 0));
    in_.append(bytes);
}

std::optional<Request> RequestReader::next() {
    if (!open_) {
        if (at_ == in_.size()) return std::nullopt;
        begin();
    }
    while (count_is_missing_ || rounds_ > 0) {
        if (count_is_missing_ ? !read_count() : !read_field()) return std::nullopt;
    }
    open_ = false;
    taken_ = 0;
    if (at_ == in_.size()) {
        in_.clear();
        if (in_.capacity() > kRoomKept) in_.shrink_to_fit();
        at_ = 0;
    }
    return std::exchange(request_, {});
}

void RequestReader::begin() {
    const auto operation = static_cast<std::uint8_t>(in_[at_]);
    if (operation >= kFields.size())
        throw ProtocolError(fmt::format("a request of kind {}, of 0 to {}", operation, kFields.size() - 1));
    ++at_;
    open_ = true;
    request_.operation = static_cast<Operation>(operation);
    fields_ = kFields[operation];
    count_is_missing_ = fields_.starts_with('*');
    if (count_is_missing_) fields_.remove_prefix(1);
    field_ = 0;
    rounds_ = fields_.empty() ? 0 : 1;
}

bool RequestReader::read_count() {
    const auto count = peek<std::uint64_t>();
    if (!count) return false;
    if (*count > kMaxKeys) throw ProtocolError(fmt::format("{} keys at once, of {}", *count, kMaxKeys));
    at_ += sizeof(*count);
    rounds_ = *count;
    count_is_missing_ = false;
    return true;
}

bool RequestReader::read_field() {
    bool whole = false;
    switch (fields_[field_]) {
        case 'k':
            whole = read_text(kMaxKey);
            break;
        case 'v':
            whole = read_text(kMaxValue);
            break;
        case 'n':
            whole = read_number<std::int64_t>();
            break;
        default:
            whole = read_number<std::uint32_t>();
            break;
    }
    if (whole && ++field_ == fields_.size()) {
        field_ = 0;
        --rounds_;
    }
    return whole;
}

bool RequestReader::read_text(std::uint64_t longest) {
    const auto bytes = peek<std::uint64_t>();
    if (!bytes) return false;
    if (*bytes > longest) throw ProtocolError(fmt::format("a text of {} bytes, of {}", *bytes, longest));
    if (in_.size() - at_ - sizeof(*bytes) < *bytes) return false;
    request_.texts.emplace_back(in_, at_ + sizeof(*bytes), *bytes);
    taken_ += sizeof(std::string) + *bytes;
    at_ += sizeof(*bytes) + *bytes;
    return true;
}

template <typename Number>
bool RequestReader::read_number() {
    const auto number = peek<Number>();
    if (!number) return false;
    request_.number = static_cast<std::int64_t>(*number);
    at_ += sizeof(*number);
    return true;
}

template <typename Number>
std::optional<Number> RequestReader::peek() const {
    Number number;
    if (in_.size() - at_ < sizeof(number)) return std::nullopt;
    std::memcpy(&number, in_.data() + at_, sizeof(number));
    return number;
}

}  // namespace tandem::engine::torch_store
