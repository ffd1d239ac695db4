// What trainer rank 0 and a receiver say to each other: one request, one reply with the same id, in order.
//
//   request "op"  fields               payload              reply beyond {"id", "ok": true}
//   hello         protocol                                  engine, version, depth, alias, device, tensors
//                                                           [{name, shape, dtype, parts [{name, start, size,
//                                                           offset, stride}]}]
//   attach        regions [bytes],     transfers × 64 B,    (the regions are mapped, the plan is checked)
//                 transfers, buckets   (buckets + 1) × 8 B
//                 + one fd a region    (first of each)        or, of a GPU's memory, gpu [{…}]
//                                                           (cuda_ipc/messages.h) and no fds, or nccl: true and
//                                                           neither (nothing is mapped)
//   seat                                                    seat: which GPU of which host
//   join          unique_id, rank,                          (this rank is in that NCCL group)
//                 size, patience_ms
//   leave                                                   (and out of it)
//   here                                                    busy: with an earlier request, and not in
//                                                           waiting for bytes (answered meanwhile)
//   release                                                 (the regions are let go)
//   probe         offset, bytes,                            ms
//                 piece_bytes
//   held                                                    version, manifest (hex)
//   begin         version                                   (weights may be overwritten from here on)
//   load          index, checksums     checksums × 16 B     ms; sent when it is copied and verified
//                 (nccl: form,
//                 patience_ms)
//   load_delta    index, entries       entries × 40 B       ms; sent when it is verified and applied
//   verify        checksums            checksums × 16 B     ms
//   adopt         shift, checksums     checksums × 16 B     (the target changes at commit)
//   commit        version, manifest                         (samples carry the version from here on)
//                 (hex)
//   abort         reason                                    (idempotent)
//   checksums                                               payload: 16 B for each tensor
// A reply to a request that failed: {"id", "ok": false, "code", "message"}; codes are common/error.h's table.
// Packed values are little endian: Transfer, u64, ops::Checksum (low, high), DeltaEntry.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine::messages {

inline constexpr int kProtocol = 5;

static_assert(sizeof(ops::Checksum) == 16);

template <typename T>
ConstSpan as_bytes(std::span<const T> values) {
    return {reinterpret_cast<const std::byte*>(values.data()), values.size_bytes()};
}
// Throws MalformedMessage when the payload is not `count` values of T.
template <typename T>
std::vector<T> from_bytes(ConstSpan payload, std::size_t count);

std::vector<std::byte> pack_plan(const TransferPlan& plan);
// Throws MalformedMessage when the payload has another length or names no dtype; says nothing about whether
// the plan makes sense (receiver/coverage.h does).
TransferPlan unpack_plan(ConstSpan payload, std::size_t transfers, std::size_t buckets);

// Fields of a header. Throws MalformedMessage naming op and field: absent, wrong type, out of range.
std::int64_t integer_field(const nlohmann::json& header, const char* field, std::int64_t minimum);
const std::string& string_field(const nlohmann::json& header, const char* field);
bool bool_field(const nlohmann::json& header, const char* field);
double number_field(const nlohmann::json& header, const char* field);
std::vector<std::int64_t> integers_field(const nlohmann::json& header, const char* field,
                                         std::int64_t minimum);

nlohmann::json capabilities_to_json(const Capabilities& capabilities);
Capabilities capabilities_from_json(const nlohmann::json& header);

nlohmann::json error_reply(std::int64_t id, const std::exception& error);
// Throws the typed error that a failed reply tells of; returns when the reply is ok.
void throw_if_failed(const nlohmann::json& reply, const std::string& peer, const std::string& phase);

}  // namespace tandem::engine::messages
