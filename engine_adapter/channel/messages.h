// What trainer rank 0 and a receiver say to each other: one request, one reply with the same id, in order.
//
//   op          fields                         payload               reply, beyond {"id", "ok": true}
//   hello       protocol, lease_ms                                   what the engine is (1)
//   attach      regions [bytes], transfers,    plan (2); a memfd a   perhaps relays: relay works for it
//               buckets, ranks; perhaps gpu,   region, unless (3)
//               nccl or tcp, cores (8)
//   gpu_id                                                           gpu_id: which GPU of which host
//   join        unique_id, rank, size,                               when this rank is in the NCCL group
//               timeout_ms
//   leave                                                            when it is out of it
//   open_data                                                        token of data connections (6)
//   ping                                                             busy: with a load, its bytes here (4)
//   release                                                          when nothing reads the regions any more
//   probe       offset, bytes, piece_bytes                           ms
//   held                                                             version, manifest (hex)
//   pause       timeout_ms                                           when nothing is generated; begins a lease (5);
//                                                                    perhaps packed_ms (7)
//   begin       version, rollback                                    from here on weights may be overwritten
//   load        index, checksums               checksums × 16 B      ms, when it is copied and verified
//               over NCCL: form, timeout_ms
//               over TCP: serial, timeout_ms
//   relay       ranks, engines, engine, from,  a memfd of words      ms, when all buckets are copied (9)
//               timeout_ms; perhaps buckets,   (engine_adapter/
//               bucket_bytes, piece_bytes,     relay.h)
//               slots: a probe
//   load_delta  index, entries                 entries × 40 B        ms, when they are verified and applied
//               over TCP: serial, timeout_ms
//   verify      checksums                      checksums × 16 B      ms
//   adopt       shift, checksums               checksums × 16 B      weights are read in place from commit on
//   commit      version, manifest (hex),                             from here on samples carry the version; resume:
//               perhaps resume                                       it is served too, by an engine of one rank
//   resume                                                           from here on the version is served
//   abort       reason                                               idempotent; gives the push up, and the pause
//   checksums                                                        payload: 16 B for each tensor
//
// (1) engine, version, depth, alias, device, tensors [{name, shape, dtype, parts [{name, start, size, offset,
//     stride}]}]; perhaps architecture (common/model/architecture.h) and context_length
// (2) transfers × 64 B, then (buckets + 1) × 8 B: the first transfer of each bucket, and the end
// (3) gpu: [{…}] (transport/cuda_ipc/messages.h) names a GPU's memory; nccl or tcp: true, and nothing is mapped
// (4) answered at once while a load over NCCL or TCP is being served
// (5) A pause or an open version ends with the connection, or when the trainer has said nothing for lease_ms;
//     receiver/push_state.h says how
// (6) ends those before; loads and load_deltas over the new ones are numbered (serial) from 0. A failed one ends them
// (7) what it took to lay the version that is held out for products, at its first request
// (8) [core], by the trainer's ranks: TransferPlan::cores
// (9) nothing is verified yet: verify follows, and reads nothing again. Whoever fails stops the words
//
// A request that failed is answered {"id", "ok": false, "code", "message"}; codes are common/error.h's table.
// Packed values are little endian: Transfer, u64, ops::Checksum (low, high), DeltaEntry.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "engine_adapter/engine.h"

namespace tandem::engine::messages {

inline constexpr int kProtocol = 7;

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
// A deadline travels as the milliseconds that are left: two processes need not agree on a clock.
std::int64_t timeout_ms(Deadline deadline);
Deadline deadline_field(const nlohmann::json& header);  // "timeout_ms", at most a day

nlohmann::json capabilities_to_json(const Capabilities& capabilities);
Capabilities capabilities_from_json(const nlohmann::json& header);

nlohmann::json error_reply(std::int64_t id, const std::exception& error);
// Throws the typed error that a failed reply tells of; returns when the reply is ok.
void throw_if_failed(const nlohmann::json& reply, const std::string& peer, const std::string& phase);

}  // namespace tandem::engine::messages
