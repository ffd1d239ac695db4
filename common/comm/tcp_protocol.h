// The TCP store's words. Every request gets one answer at once; a client that waits for a key asks again.
//
//   request   operation u8 | key bytes u32 | value bytes u32 | key | value      numbers in network order
//   answer    status u8    | value bytes u32 | value
//
//   operation   value        status   answer's value
//   set         the value    ok       empty
//   get         empty        ok       the value          (absent: empty)
//   add         an integer   ok       the new integer    (refused: why)
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::comm::wire {

enum class Operation : std::uint8_t { set = 1, get = 2, add = 3 };
enum class Status : std::uint8_t { ok = 0, absent = 1, refused = 2 };

constexpr std::size_t kRequestHeader = 9;
constexpr std::size_t kAnswerHeader = 5;
constexpr std::uint32_t kMaxKey = 4096;
constexpr std::uint32_t kMaxValue = 16U << 20;  // a longer request is refused by closing the connection

inline void put_u32(unsigned char* at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) at[i] = static_cast<unsigned char>(value >> (24 - 8 * i));
}
inline std::uint32_t get_u32(const unsigned char* at) {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | at[i];
    return value;
}

}  // namespace tandem::comm::wire
