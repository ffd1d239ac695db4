// What trainer rank 0 and a receiver say to each other: one request, one reply with the same id, in order.
//
//   request "op"   fields                     payload           reply beyond {"id", "ok": true}
//   hello          protocol                                     engine, version, depth, tensors [{name,
//   shape, dtype}] attach         slots, slot_bytes, + fd                      (the staging arena is mapped)
//   begin          version                                      (weights may be overwritten from here on)
//   bucket         index, slot, entries       entries x 48 B    copy_ms; sent when the bucket is copied and
//   verified commit         version, manifest (hex)                      (samples carry the version from here
//   on) abort          reason                                       (idempotent) checksums payload: 16 B for
//   each tensor, low then high
// A reply to a request that failed: {"id", "ok": false, "code", "message"}; codes are common/error.h's table.
// An entry, little endian: u32 tensor (index in hello's list), u32 source_rank, u64 tensor_offset, u64
// bucket_offset, u64 bytes, u64 checksum low, u64 checksum high.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine::wire {

inline constexpr int kProtocol = 1;

struct Entry {
    std::uint32_t tensor = 0;
    std::uint32_t source_rank = 0;
    std::uint64_t tensor_offset = 0;
    std::uint64_t bucket_offset = 0;
    std::uint64_t bytes = 0;
    ops::Checksum checksum;
};
static_assert(sizeof(Entry) == 48);
static_assert(sizeof(ops::Checksum) == 16);

template <typename T>
ConstSpan as_bytes(const std::vector<T>& values) {
    return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}
// Throws MalformedMessage when the payload is not `count` values of T.
template <typename T>
std::vector<T> from_bytes(const std::vector<std::byte>& payload, std::size_t count);

// Fields of a header. Throws MalformedMessage naming op and field: absent, wrong type, out of range.
std::int64_t integer_field(const nlohmann::json& header, const char* field, std::int64_t minimum);
const std::string& string_field(const nlohmann::json& header, const char* field);

nlohmann::json capabilities_to_json(const Capabilities& capabilities);
Capabilities capabilities_from_json(const nlohmann::json& header);

nlohmann::json error_reply(std::int64_t id, const std::exception& error);
// Throws the typed error that a failed reply tells of; returns when the reply is ok.
void throw_if_failed(const nlohmann::json& reply, const std::string& peer, const std::string& phase);

}  // namespace tandem::engine::wire
