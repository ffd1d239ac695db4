#include "engine_adapter/torch_pickle/pickle.h"

#include <limits>

#include "common/error.h"

namespace tandem::engine::pickle {
namespace {

// Opcodes, by their names in Python's pickletools.
constexpr char kMark = '(';
constexpr char kStop = '.';
constexpr char kNone = 'N';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt = 'J';
constexpr char kLong1 = '\x8a';
constexpr char kBinUnicode = 'X';
constexpr char kShortBinUnicode = '\x8c';
constexpr char kBinBytes = 'B';
constexpr char kShortBinBytes = 'C';
constexpr char kEmptyTuple = ')';
constexpr char kTuple1 = '\x85';
constexpr char kTuple = 't';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kStackGlobal = '\x93';
constexpr char kReduce = 'R';
constexpr char kProto = '\x80';

std::string little_endian(std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
}

std::string sized(char with_one_byte, char with_four, std::string_view content) {
    require(content.size() <= std::numeric_limits<std::uint32_t>::max(), "{} bytes in one pickled value",
            content.size());
    const bool small = content.size() < 256;
    return (small ? with_one_byte : with_four) + little_endian(content.size(), small ? 1 : 4) +
           std::string(content);
}

std::string joined(const Values& values) {
    std::string text;
    for (const std::string& value : values) text += value;
    return text;
}

}  // namespace

std::string none() {
    return {kNone};
}

std::string boolean(bool value) {
    return {value ? kNewTrue : kNewFalse};
}

std::string integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= 0 && value < 256) return kBinInt1 + little_endian(bits, 1);
    if (value == static_cast<std::int32_t>(value)) return kBinInt + little_endian(bits, 4);
    return kLong1 + little_endian(8, 1) + little_endian(bits, 8);
}

std::string text(std::string_view utf8) {
    return sized(kShortBinUnicode, kBinUnicode, utf8);
}

std::string bytes(std::string_view content) {
    return sized(kShortBinBytes, kBinBytes, content);
}

std::string tuple(const Values& values) {
    if (values.empty()) return {kEmptyTuple};
    if (values.size() <= 3)
        return joined(values) + static_cast<char>(kTuple1 + static_cast<int>(values.size()) - 1);
    return kMark + joined(values) + kTuple;
}

std::string list(const Values& values) {
    if (values.empty()) return {kEmptyList};
    return std::string{kEmptyList, kMark} + joined(values) + kAppends;
}

std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
    std::string text{kEmptyDict, kMark};
    for (const auto& [key, value] : items) text += key + value;
    return text + kSetItems;
}

std::string global(std::string_view module, std::string_view name) {
    return text(module) + text(name) + kStackGlobal;
}

std::string call(const std::string& callable, const Values& arguments) {
    return callable + tuple(arguments) + kReduce;
}

std::string document(const std::string& value) {
    return std::string{kProto, '\x04'} + value + kStop;
}

}  // namespace tandem::engine::pickle
