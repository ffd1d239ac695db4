// The port: what sync asks of any engine. One engine process is one Engine; the embedded one, SGLang and vLLM
// each implement it. Nothing here says how bytes travel; a Transport (transport/transport.h) does.
//
//   state of a version, seen from here          allowed next
//   idle (engine serves version v or none)      pause, begin
//   open (between begin and commit)             load, commit, abort
// begin on an open version, load or commit on an idle one: ProtocolError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/device/device.h"
#include "common/ops/batched_copy.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tandem::engine {

struct TensorInfo {
    std::string name;  // Hugging Face name
    Shape shape;       // global
    DType dtype = DType::float32;
};

// Asked once, after connecting.
struct Capabilities {
    std::string engine;               // "tandem", "sglang", "vllm"
    std::vector<TensorInfo> tensors;  // what the engine holds, in its order
    std::int64_t version = 0;         // 0: none yet
    int depth = 2;                    // buckets that may be in flight
};

// A run of bytes of one tensor inside a bucket, already in the engine's dtype.
struct BucketEntry {
    std::string name;
    std::size_t tensor_offset = 0;  // bytes, in the engine's tensor
    std::size_t bucket_offset = 0;  // bytes, in the slot
    std::size_t bytes = 0;
    ops::Checksum checksum;
    int source_rank = 0;  // the trainer rank that wrote it, for messages
};

struct Bucket {
    int index = 0;
    int slot = 0;  // which part of the staging arena holds it
    std::vector<BucketEntry> entries;
};

// Memory that the trainer ranks fill and the engine reads: `slots` slots of slot_bytes each. Borrowed: its
// owner keeps it mapped for as long as the engine is connected.
struct StagingArea {
    Span memory;  // this process's mapping
    int fd = -1;  // of the shared memory behind it, for engines of the same host; -1: none
    int slots = 0;
    std::size_t slot_bytes = 0;

    Span slot(int index) const {
        return memory.subspan(static_cast<std::size_t>(index) * slot_bytes, slot_bytes);
    }
};

class Engine {
  public:
    virtual ~Engine() = default;
    virtual const Capabilities& capabilities() const = 0;
    virtual std::string peer() const = 0;  // "engine 127.0.0.1:30000", for messages

    // Stops generation and returns when nothing reads the weights any more. resume lets it go on; an engine
    // that holds no whole version resumes to refusing. Both are idempotent.
    virtual void pause(Deadline deadline) = 0;
    virtual void resume(Deadline deadline) = 0;

    // Where buckets will lie. Once after connecting, while idle; again replaces the area.
    virtual void attach(const StagingArea& staging, Deadline deadline) = 0;

    virtual void begin(std::int64_t version, Deadline deadline) = 0;
    // Hands over a filled slot and returns at once; the engine verifies and copies it while the next one is
    // filled.
    virtual void load_async(const Bucket& bucket, Deadline deadline) = 0;
    // Waits until the engine is done with bucket `index`, so that its slot may be filled again. Throws
    // ProtocolError naming tensor, rank and bucket when a checksum did not match; the version can then only
    // be aborted. Returns the milliseconds that the engine spent copying and verifying the bucket.
    virtual double wait_loaded(int index, Deadline deadline) = 0;
    // All or nothing: every byte of every tensor must have been loaded and the manifest checksum must match.
    virtual void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) = 0;
    virtual void abort(const std::string& reason, Deadline deadline) = 0;

    // Checksum of each tensor as the engine holds it now, in the order of capabilities().tensors.
    virtual std::vector<ops::Checksum> checksums(Deadline deadline) = 0;
};

// What both ends agree on at commit. The checksum of a tensor within a version is ops::combine over the
// checksums of its entries in ascending tensor_offset (so it depends on how the plan cut it, which both ends
// saw). The manifest checksum is XXH3-128 over the text "version\n" and then, for each tensor in the engine's
// order, "name\tdtype\t[shape]\thex\n".
ops::Checksum manifest_checksum(std::int64_t version, const std::vector<TensorInfo>& tensors,
                                const std::vector<ops::Checksum>& checksums);

std::size_t tensor_bytes(const TensorInfo& tensor);

}  // namespace tandem::engine
