// The TCP store's words. The server speaks first; a server with a secret hears no request before both sides have proven
// that they know it.
//
//   greeting  "TandSto2" | mode u8 | 32 random bytes                                   mode: 0 open, 1 secret
//   proof     32 random bytes | 32 bytes of MAC              from the client, mode secret only
//   verdict   status u8 | 32 bytes of MAC                    from the server; refused: the connection ends
//
// Then requests. Every one gets one answer at once; a client that waits for a key asks again.
//
//   request   operation u8 | key bytes u32 | value bytes u32 | key | value      numbers in network order
//   answer    status u8    | value bytes u32 | value
//
//   operation   value        status   answer's value
//   set         the value    ok       empty                  (refused: the store is full)
//   get         empty        ok       the value              (absent: empty)
//   add         an integer   ok       the new integer        (refused: why)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/identity/job_secret.h"

namespace tandem::wire {

enum class Mode : std::uint8_t { open = 0, secret = 1 };
enum class Operation : std::uint8_t { set = 1, get = 2, add = 3 };
enum class Status : std::uint8_t { ok = 0, absent = 1, refused = 2 };

constexpr std::string_view kMagic = "TandSto2";
constexpr std::size_t kNonce = sizeof(Nonce);
constexpr std::size_t kMac = sizeof(Proof);
constexpr std::size_t kGreeting = kMagic.size() + 1 + kNonce;
constexpr std::size_t kProof = kNonce + kMac;
constexpr std::size_t kVerdict = 1 + kMac;
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

}  // namespace tandem::wire
