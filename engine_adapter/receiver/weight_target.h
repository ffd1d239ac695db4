// What the receiver needs of the engine it runs in: the memory of its weights and a switch between versions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/device/device.h"
#include "common/error.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

struct WeightSlot {
    TensorInfo info;
    Span memory;  // the engine's own; stable for its whole life, also while it reads its weights in place
};

// Called from the receiver's thread. Implementations are thread-safe against the engine's own threads.
class WeightTarget {
  public:
    virtual ~WeightTarget() = default;
    virtual const std::vector<WeightSlot>& weights() const = 0;
    virtual std::int64_t version() const = 0;     // 0: no whole version
    virtual Device device() const { return {}; }  // that the weights lie on
    // What trainers compare with their own; none: it is not known.
    virtual std::optional<model::Architecture> architecture() const { return {}; }
    virtual std::int64_t context_length() const { return 0; }  // in tokens; 0: not known

    // Returns when nothing is generated, and nothing is before the next resume; throws DeadlineExceeded, and then goes
    // on. Apart from a pause that somebody else asked for. Both are idempotent; a target that never generates need do
    // nothing.
    virtual void pause(Deadline deadline) { (void)deadline; }
    virtual void resume() {}
    // Milliseconds that the current version took to be laid out for products; 0: not yet, or it is not.
    virtual double packed_ms() const { return 0; }

    // The weights are about to be overwritten: from here until commit the engine refuses to generate. Throws
    // InvalidArgument unless generation is paused.
    virtual void begin_update(std::int64_t version) = 0;
    // A whole, verified version is in place: samples from here on carry it; unfinished requests restart from
    // their prompt.
    virtual void commit_update(std::int64_t version) = 0;
    // The update failed. dirty: some weights were overwritten (mixed weights), so the engine keeps refusing,
    // with `reason`, until a later commit. Not dirty: the old version is served again.
    virtual void abort_update(const std::string& reason, bool dirty) = 0;

    // Whether point_weights works.
    virtual bool can_alias() const { return false; }
    // Between begin_update and commit_update: from here on the engine reads tensor i at memory[i], which is
    // as large as its slot and must not be written. `owner` keeps that memory mapped until the next call;
    // null when it is the engine's own.
    virtual void point_weights(const std::vector<Span>& memory, std::shared_ptr<const void> owner) {
        (void)memory;
        (void)owner;
        throw BadInput("this engine cannot read weights in place");
    }
    // The version in place is whole, but other ranks of the engine may not have it: refuse with `reason` until a later
    // commit. Not while an update is open.
    virtual void withhold(const std::string& reason) { (void)reason; }

    // The memory that the engine reads its weights in is about to be lost: nothing reads it any more when
    // this returns, and the engine refuses with `reason` until a later commit. Not while an update is open.
    virtual void lose_weights(const std::string& reason) {
        (void)reason;
        throw BadInput("this engine reads no weights in place");
    }
};

}  // namespace tandem::engine
