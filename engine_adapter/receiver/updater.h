// Carries out what the trainer asks, one request at a time: begin, bucket, commit, abort, checksums. Knows
// the state machine and the weights, not the socket.
//
//   state   begin   bucket         commit          abort   lost
//   idle    open    error          error           idle    idle
//   open    error   open | idle*   idle (| idle*)  idle*   idle*
// idle*: with target.abort_update(reason, dirty), dirty when a bucket was copied. Errors are ProtocolErrors,
// except the target's own.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/device/shared_arena.h"
#include "engine_adapter/receiver/team.h"
#include "engine_adapter/receiver/update.h"

namespace tandem::engine {

class Updater {
  public:
    Updater(WeightTarget& target, int copy_threads);

    Capabilities capabilities(const std::string& engine, int depth) const;
    void attach(SharedArena arena, int slots, std::size_t slot_bytes);
    void begin(std::int64_t version);
    double bucket(int index, std::int64_t slot,
                  std::span<const wire::Entry> entries);  // milliseconds of copying
    void commit(std::int64_t version, const ops::Checksum& manifest);
    void abort(const std::string& reason);  // does nothing when idle
    std::vector<ops::Checksum> checksums();
    void detach();  // the trainer is gone: unmaps its arena

  private:
    Update& require_open(const char* what);
    void copy_verified(int index, ConstSpan slot, std::span<const wire::Entry> entries);

    WeightTarget& target_;
    Team team_;
    SharedArena arena_;
    int slots_ = 0;
    std::size_t slot_bytes_ = 0;
    std::optional<Update> open_;
    bool dirty_ = false;
    std::string last_abort_;  // why there is no open version, for messages
};

}  // namespace tandem::engine
