// What a client of PyTorch's TCPStore sends, and a value as it is answered.
#pragma once

#include <string>
#include <vector>

#include "engine_adapter/torch_store/wire.h"

namespace tandem::engine::torch_store {

inline std::string text(std::string_view content) {
    std::string said;
    put_text(said, content);
    return said;
}
template <typename Number>
std::string number(Number value) {
    std::string said;
    put(said, value);
    return said;
}

inline std::string ask(Operation operation, const std::string& fields = "") {
    return static_cast<char>(operation) + fields;
}
inline std::string ask_keys(Operation operation, const std::vector<std::string>& keys) {
    std::string fields = number<std::uint64_t>(keys.size());
    for (const std::string& key : keys) fields += text(key);
    return ask(operation, fields);
}
inline std::string validate(std::uint32_t magic = kMagic) {
    return ask(Operation::validate, number(magic));
}
inline std::string set(std::string_view key, std::string_view value) {
    return ask(Operation::set, text(key) + text(value));
}
inline std::string get(std::string_view key) {
    return ask(Operation::get, text(key));
}

const std::string kStop(1, kStopWaiting);
const std::string kCanceled(1, kWaitCanceled);

}  // namespace tandem::engine::torch_store
