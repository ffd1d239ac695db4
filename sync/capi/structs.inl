// Reading and writing structs that grow: only the bytes that both sides know.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "common/error.h"

namespace tandem::sync::capi {

template <typename T>
T read_struct(const T* from, const char* what) {
    enforce(from != nullptr, "{} is NULL", what);
    std::size_t size = 0;
    std::memcpy(&size, from, sizeof size);
    enforce(size > sizeof size && size <= 4096, "{}.size is {}: set it to sizeof({})", what, size, what);
    T value{};
    std::memcpy(static_cast<void*>(&value), from, std::min(size, sizeof(T)));
    return value;
}

template <typename T>
void write_struct(T* to, const T& value, const char* what) {
    if (to == nullptr) return;
    std::size_t size = 0;
    std::memcpy(&size, to, sizeof size);
    enforce(size > sizeof size && size <= 4096, "{}.size is {}: set it to sizeof({})", what, size, what);
    std::memcpy(static_cast<void*>(to), &value, std::min(size, sizeof(T)));
    std::memcpy(static_cast<void*>(to), &size, sizeof size);
}

}  // namespace tandem::sync::capi
