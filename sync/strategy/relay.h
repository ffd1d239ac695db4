// The trainer's side of a relay (engine_adapter/relay.h): the words that a job's ranks share with its engines, one relay after
// the other. Used by one thread.
#pragma once

#include <chrono>

#include "common/comm/communicator.h"
#include "engine_adapter/engine.h"
#include "sync/strategy/engines.h"
#include "sync/strategy/staging.h"

namespace tandem::sync {

class Relay {
  public:
    // Collective: whether all engines, which rank 0 has, take what they are attached to by a relay.
    static bool taken_by(comm::Communicator& world, const Engines& engines);
    // Collective; `engines` outlives this. Throws SyncError on every rank alike.
    Relay(comm::Communicator& world, const Engines& engines, std::size_t engine_ranks);

    // The next relay, which all ranks begin; the one before must have ended for the engines.
    void begin(std::size_t buckets, std::size_t slots);
    // Rank 0 tells the engines. probe: of calibration; null: all buckets of the plan.
    void start(PushStatus& status, Deadline deadline, const engine::RelayProbe* probe = nullptr);
    // This rank has written its part of the next bucket; the number of those that it has.
    void wrote() { words_.write(rank_, from_ + ++written_); }
    std::size_t written() const { return written_; }
    // Waits until the slot of the next bucket is free. False: somebody has stopped the relay, or an engine is late or gone,
    // which `status` says or wait_taken will. Throws when the job was aborted or a rank's process has ended, and
    // DeadlineExceeded on ranks without engines.
    bool wait_for_slot(PushStatus& status, Deadline deadline);
    // Rank 0, which alone can tell of an engine, before the ranks meet: until the engines have taken all of every rank's, or
    // somebody has stopped the relay, or a rank makes no progress for so long: whom the others then name where they meet. An
    // engine that is late or gone is noted in `status`, and stops it. Throws as wait_for_slot does.
    void wait_for_ranks(PushStatus& status, Deadline deadline, std::chrono::milliseconds at_most);
    // Rank 0: the engines' answers; the milliseconds of the slowest.
    double wait_taken(PushStatus& status, Deadline deadline);
    void stop() { words_.stop(from_); }  // everybody, the engines too, leaves this relay

  private:
    int behind(std::uint64_t count) const;
    std::uint64_t progress() const;  // of all, in buckets
    bool all_taken_by(std::size_t engine) const;
    bool all_taken() const;
    void give_up(std::size_t engine, PushStatus& status, Deadline deadline);

    comm::Communicator& world_;
    const Engines& engines_;
    const std::size_t rank_;
    Staging memory_;
    engine::RelayWords words_;
    std::uint64_t from_ = 0;  // what the words stood at when this one began
    std::size_t buckets_ = 0, slots_ = 1, written_ = 0;
};

}  // namespace tandem::sync
