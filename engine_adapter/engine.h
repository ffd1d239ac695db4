// The port: what sync asks of any engine. One engine process (one tensor-parallel rank of an engine) is one
// Engine. Each kind of engine implements it in a folder of its own: tandem/ for engines that run our receiver, vllm/,
// sglang/. connect.h makes an Engine from a name. How bytes travel is the engine's choice (ours:
// transport/transport.h).
//
//   version                       call                             version after it
//   idle (serves one, or none)    attach, release, probe           idle
//                                 pause, resume                    idle
//                                 begin                            open
//   open (begun, not committed)   buckets().load, load_delta,      open; idle (aborted) when it throws
//                                 relay()->take
//                                 verify, adopt                    likewise
//                                 commit                           idle; aborted when it throws
//                                 abort                            idle
// Each of these in the other state is a ProtocolError, but abort. The rest may be called at any time. A pause ends with
// resume, with abort or a call that aborts, and with the trainer; what is served then, if anything: push_state.h of the
// receiver, for our engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "common/deadline.h"
#include "common/device/device.h"
#include "common/model/architecture.h"
#include "common/ops/batched_copy.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "engine_adapter/region.h"
#include "engine_adapter/relay.h"

namespace tandem::engine {

// A box of one of the trainer's tensors, and where its elements lie in an engine's tensor: element (i, j, …)
// of the box at offset + i·stride[0] + j·stride[1] + …. Offsets and strides count elements.
struct Part {
    std::string name;  // Hugging Face name
    Shape start;       // of the box, in the trainer's tensor
    Shape size;        // as many dims
    std::int64_t offset = 0;
    Shape stride;
    friend bool operator==(const Part&, const Part&) = default;
};

struct TensorInfo {
    std::string name;  // the engine's own; the Hugging Face name where there are no parts
    Shape shape;       // as this engine rank holds it
    DType dtype = DType::float32;
    std::vector<Part> parts = {};  // empty: the trainer's whole tensor of that name
};

// Asked once, after connecting.
struct Capabilities {
    std::string engine;               // "tandem", "sglang", "vllm"
    std::vector<TensorInfo> tensors;  // what the engine holds, in its order
    std::int64_t version = 0;         // 0: none that is whole
    int depth = 2;                    // buckets that may be in flight
    bool alias = false;               // adopt works
    Device device = {};               // where the weights lie, as the engine's process counts its devices
    bool stages = false;  // takes whole versions only, beside the one it serves: it stops for commit alone
    bool maps = false;  // of one that stages: it opens the trainer's memory and applies changes, in any mode
    bool paused = false;  // by whomever, as far as a third-party server says: it answers no request
    bool remote = false;  // bytes reach it over a network
    std::optional<model::Architecture> architecture = {};  // that it computes; absent: it does not say
    // Of this host, with the config.json that it was started with; empty: not known. What it was told beside that
    // (overrides) is its own.
    std::string directory = {};
    std::int64_t context_length = 0;  // tokens of a prompt and its answer at most; 0: it does not say
    // Of the versions that it has had, where it remembers more than `version`: only a rollback begins one not above it.
    std::int64_t newest = 0;
    bool takes_gathered_only() const { return stages && !maps; }  // from trainer rank 0's memory
    // commit has compared what it took with the trainer's checksums, and checksums() works. Others say that they loaded.
    bool tells_checksums() const { return !takes_gathered_only(); }
};

// A DType as four bytes. In a peer's plan it may be any number until that is checked.
struct PackedDType {
    std::uint32_t number = 0;
    constexpr PackedDType(DType dtype) : number(static_cast<std::uint32_t>(dtype)) {}
    constexpr PackedDType() = default;
    constexpr operator DType() const { return static_cast<DType>(number); }
};

// Where a run of one tensor lies in a region and where it goes: `rows` rows of row_elements, at `from` +
// row·from_stride in the region, to `to` + row·to_stride in the engine's tensor. All in bytes, of from_dtype
// there and of the tensor's dtype here; the engine casts float32 ↔ bfloat16 on the way. Plain bytes; travels
// as it is (channel/messages.h).
struct Transfer {
    std::uint32_t tensor = 0;       // index in Capabilities::tensors
    std::uint32_t source_rank = 0;  // the trainer rank that wrote it, for messages
    std::uint32_t region = 0;
    PackedDType from_dtype = DType::float32;
    std::uint64_t rows = 0;
    std::uint64_t row_elements = 0;
    std::uint64_t from = 0;
    std::uint64_t from_stride = 0;
    std::uint64_t to = 0;
    std::uint64_t to_stride = 0;
};
static_assert(sizeof(Transfer) == 64 && std::has_unique_object_representations_v<Transfer>);

// All transfers of a version, the same for every version: each byte of each tensor exactly once. Bucket b is
// the transfers [first[b], first[b + 1]).
struct TransferPlan {
    std::vector<Transfer> transfers;
    std::vector<std::uint64_t> first{0};
    std::uint64_t ranks = 1;  // of the engine: the trainer resumes none of them before all have the version
    // [source rank] The core that writes a rank's bytes, whose caches may still hold them: the engine reads them fastest
    // there. Empty: not known. A hint.
    std::vector<std::int64_t> cores = {};
    std::size_t buckets() const { return first.size() - 1; }
    std::span<const Transfer> bucket(std::size_t b) const {
        return std::span(transfers).subspan(first[b], first[b + 1] - first[b]);
    }
};

// How the new elements of a transfer are written, relative to what the engine holds (common/ops/delta.h).
// Plain bytes; travels as it is.
struct DeltaEntry {
    std::uint32_t transfer = 0;
    std::uint32_t codec = 0;   // ops::DeltaCodec
    std::uint64_t offset = 0;  // bytes, in region 0
    std::uint64_t bytes = 0;   // encoded
    ops::Checksum checksum;    // of the encoded bytes
};
static_assert(sizeof(DeltaEntry) == 40 && std::has_unique_object_representations_v<DeltaEntry>);

// The version that an engine holds now: deltas are relative to it.
struct Held {
    std::int64_t version = 0;  // 0: no whole version
    ops::Checksum manifest;    // of that version
};

// How all buckets of what attach() was given come into an engine without a message for each: by words of shared memory
// (relay.h). One at a time, and none beside loads. Used by one thread at a time.
class BucketRelay {
  public:
    virtual ~BucketRelay() = default;
    // The engine takes each bucket of the plan when its words say that a rank has written its part of it. Returns at once.
    // wait_taken must follow, and then Engine::verify, which reads nothing again; or an abort. Whoever fails meanwhile stops
    // the words, the engine too. Throws TransportError, InvalidArgument (something in flight).
    virtual void take(const Relay& relay, Deadline deadline) = 0;
    // The same of no version, to memory that is not read, between pushes; verify does not follow.
    virtual void take_probe(const Relay& relay, const RelayProbe& probe, Deadline deadline) = 0;
    // The engine has answered, or is gone: wait_taken will not wait.
    virtual bool answered() = 0;
    // Waits until all bytes are in the engine's weights, with nothing verified yet. Throws as BucketLoader::wait_loaded does.
    // Returns the milliseconds that the engine spent.
    virtual double wait_taken(Deadline deadline) = 0;
};

// How the buckets of what attach() was given come into an engine. Used by one thread at a time.
class BucketLoader {
  public:
    virtual ~BucketLoader() = default;

    // A bucket of the version that comes next is ready in its regions, and stays so until wait_loaded or abort: its bytes
    // may travel, to memory that is not the weights, while the engine generates. Before begin; load() of the same
    // buckets must follow in the same order, or an abort. Nothing where the engine reads the regions itself.
    virtual void send_ahead(int bucket, Deadline deadline) {
        (void)bucket;
        (void)deadline;
    }
    // A bucket of the plan is ready in its regions; `checksums` has one for each of its transfers, of the bytes as the
    // engine will hold them. Returns at once; the engine copies and verifies it in the background. The number is free
    // again after wait_loaded. Throws TransportError (peer gone), InvalidArgument (no such bucket, wrong number of
    // checksums, number in flight).
    virtual void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) = 0;
    // The same for changes, in region 0, against the version that the engine holds; `bucket` is any number not in
    // flight. After the last one verify must follow.
    virtual void load_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) = 0;
    // Waits until the bucket's bytes are in the engine's weights, and verified; after that, or after a throw, its memory
    // is the trainer's again. Throws ProtocolError naming tensor, rank and bucket: refused, or a checksum did not match;
    // the version can then only be aborted. Returns the milliseconds that the engine spent on the bucket.
    virtual double wait_loaded(int bucket, Deadline deadline) = 0;

    // Null: none works for what is attached. Valid until the next attach.
    virtual BucketRelay* relay() { return nullptr; }
};

class Engine {
  public:
    virtual ~Engine() = default;
    virtual const Capabilities& capabilities() const = 0;
    virtual std::string peer() const = 0;  // "engine 127.0.0.1:30000", for messages

    // Stops generation and returns when nothing reads the weights any more. resume continues it: an engine of several
    // ranks must not be resumed on a version that one of them lacks. An engine without a whole version then refuses
    // requests. Both are idempotent. They count for this trainer: a pause that somebody else asked for stays.
    virtual void pause(Deadline deadline) = 0;
    virtual void resume(Deadline deadline) = 0;
    // How long the engine took, after the push before this pause, to lay that version out for its products; 0: it did
    // not, or does not say.
    virtual double packed_ms() const { return 0; }

    // Sets the memory that buckets will come from, and the plan that says how; a second call replaces both.
    // Throws ProtocolError naming the tensor when the plan misses or repeats a byte.
    virtual void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) = 0;

    // Call before the trainer frees the regions: returns when the engine does not use them any more. Weights
    // that it reads in place in a GPU's memory are copied to its own first, so generation must be paused.
    virtual void release(Deadline deadline) = 0;

    // Copies [offset, offset + bytes) of region 0, split in pieces, to scratch memory, and checksums it as it
    // would a bucket that the ranks of TransferPlan::cores wrote in equal parts; returns the engine's milliseconds. For
    // calibration.
    virtual double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                         Deadline deadline) = 0;
    // The same, begun before it returns, as load() is; the call that is returned waits for it, and they are made in order.
    // An engine that cannot probes at once.
    virtual std::function<double()> start_probe(std::uint64_t offset, std::uint64_t bytes,
                                                std::uint64_t piece_bytes, Deadline deadline) {
        return [ms = probe(offset, bytes, piece_bytes, deadline)] { return ms; };
    }
    virtual Held held(Deadline deadline) = 0;

    virtual void begin(std::int64_t version, Deadline deadline) = 0;
    virtual BucketLoader& buckets() = 0;  // valid until the next attach
    // Compares what the engine holds now with `checksums`, one for each transfer of the plan; they become the
    // version's. Throws ProtocolError naming the first tensor that differs. Returns milliseconds.
    virtual double verify(std::span<const ops::Checksum> checksums, Deadline deadline) = 0;
    // Mode alias: from commit on the engine reads its weights in place, where the plan's transfers lie,
    // `shift` bytes further on in the region. Throws ProtocolError naming a tensor that is not contiguous
    // there.
    virtual void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums, Deadline deadline) = 0;

    // commit(version, manifest) will follow: an engine that is far away may be told now, behind the buckets that are in
    // flight, and commits when they have all arrived whole; commit then waits for its answer. only_rank: this is the
    // engine's only rank, so that nothing need be known of others before it resumes: it may with the commit. abort takes
    // back what has not happened yet.
    virtual void commit_ahead(std::int64_t version, const ops::Checksum& manifest, bool only_rank,
                              Deadline deadline) {
        (void)version;
        (void)manifest;
        (void)only_rank;
        (void)deadline;
    }
    // All or nothing: every bucket must have been loaded (or verify, or adopt called) and the manifest
    // checksum must match.
    virtual void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) = 0;
    virtual void abort(const std::string& reason, Deadline deadline) = 0;

    // Checksum of each tensor as the engine holds it now, in the order of capabilities().tensors.
    virtual std::vector<ops::Checksum> checksums(Deadline deadline) = 0;
};

// The checksum that both ends compare at commit. The checksum of a tensor within a version is ops::combine
// over the checksums of its transfers in the plan's order (so it depends on how the plan cut it, which both
// ends know). The manifest checksum is XXH3-128 over the text "version\n" and then, for each tensor in the
// engine's order, "name\tdtype\t[shape]\thex\n".
// transfers: the checksums of all transfers of the plan. Throws InvalidArgument: more or fewer than those.
ops::Checksum manifest_checksum(std::int64_t version, const std::vector<TensorInfo>& tensors,
                                const TransferPlan& plan, std::span<const ops::Checksum> transfers);

std::size_t tensor_bytes(const TensorInfo& tensor);
// That most bytes of the tensors have: what an engine that holds them computes in. float32 where there are none.
DType main_dtype(const std::vector<TensorInfo>& tensors);

}  // namespace tandem::engine
