// The words of PyTorch's TCPStore, as its clients of PyTorch 2.6 to 2.13 say them. Read in torch/csrc/distributed/c10d:
// TCPStoreBackend.hpp of the wheels of 2.6.0 (git 2236df1) and 2.13.0 (git cf30153), TCPStore.cpp and
// TCPStoreLibUvBackend.cpp of the same time. Clients older than 2.2 speak otherwise.
//
// The client speaks first, once VALIDATE, and then asks for one thing after the other. Numbers are in the client's byte
// order (little endian), a text is its bytes u64 and then them, `k` a key, `v` a value, `n` an i64, `u` a u32, and `*` a u64
// that says how often the rest comes.
//
//   request         asks with   answer
//   VALIDATE      0  u          none; u is kMagic, and first
//   SET           1  k v        none
//   COMPARE_SET   2  k v v      text: the value now; where the key is absent and the expected value is not empty, that
//   GET           3  k          text; empty where the key is absent (clients WAIT before)
//   ADD           4  k n        i64: the sum, which is kept as decimal text
//   CHECK         5  *k         u8: 0 all are there, 1 not
//   WAIT          6  *k         u8 0 once all are there
//   GETNUMKEYS    7             i64
//   DELETE_KEY    8  k          i64: how many were there
//   APPEND        9  k v        none
//   MULTI_GET    10  *k         a text each
//   MULTI_SET    11  *kv        none
//   CANCEL_WAIT  12             u8 1; the answer to the WAIT may have gone out before
//   PING         13  u          u32: the same
//   QUEUE_PUSH   14  k v        none                                       from here on since 2.8
//   QUEUE_POP    15  k          i64: how many there were; if any, the first as a text
//   QUEUE_LEN    16  k          i64
//   LIST_KEYS    17             i64, and a text each
//   BARRIER      18  k n        u8 0 once n have asked for it; counts at the key as ADD does
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tandem::engine::torch_store {

enum class Operation : std::uint8_t {
    validate = 0,
    set = 1,
    compare_set = 2,
    get = 3,
    add = 4,
    check = 5,
    wait = 6,
    get_num_keys = 7,
    delete_key = 8,
    append = 9,
    multi_get = 10,
    multi_set = 11,
    cancel_wait = 12,
    ping = 13,
    queue_push = 14,
    queue_pop = 15,
    queue_len = 16,
    list_keys = 17,
    barrier = 18
};

// What each asks with, in the letters of the table above.
constexpr std::array<std::string_view, 19> kFields = {
    "u", "kv", "kvv", "k", "kn", "*k", "*k", "", "k", "kv", "*k", "*kv", "", "u", "kv", "k", "k", "", "kn"};

constexpr std::uint32_t kMagic = 0x3C85F7CE;
constexpr char kStopWaiting = 0;
constexpr char kWaitCanceled = 1;
constexpr char kReady = 0;
constexpr char kNotReady = 1;

// The limits of PyTorch's own server.
constexpr std::uint64_t kMaxKey = 8 << 10;
constexpr std::uint64_t kMaxValue = 8 << 20;
constexpr std::uint64_t kMaxKeys = 128 << 10;  // in one request

template <typename Number>
void put(std::string& text, Number number) {
    char bytes[sizeof(Number)];
    std::memcpy(bytes, &number, sizeof(Number));
    text.append(bytes, sizeof(Number));
}
inline void put_text(std::string& text, std::string_view content) {
    put<std::uint64_t>(text, content.size());
    text.append(content);
}

}  // namespace tandem::engine::torch_store
