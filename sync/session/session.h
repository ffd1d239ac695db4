// A trainer's lasting sync with one engine, of one or several ranks: planned once, then push(version) after
// every optimizer step. All ranks of the world call every function together (except the const ones); rank 0
// talks to the engine.
//
//   push:   prepare → pause → begin → transfer → commit → resume, or abort (push_protocol.h)
//   mode    prepare (engines generate)             transfer (engines paused)
//   gather  first buckets filled                   [fill bucket n+1 ∥ engines copy bucket n]
//   direct  shards hashed                          engines read the shards themselves
//   alias   shards copied to the free half         engines turn to that half: nothing moves
//           of memory that the engines read
//   delta   changes found and encoded              changes sent, applied, everything verified
// A failure on any rank ends the push on every rank with the same SyncError, which names rank, phase, peer
// and bucket. Up to the last commit the engines have then been told to abort: they serve the version from before where
// it is intact, and else refuse until a push succeeds. A failure of the phase resume leaves the version committed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "engine_adapter/engine.h"
#include "sync/codec/half_range.h"
#include "sync/codec/quantizer.h"
#include "sync/cost/tune.h"
#include "sync/session/push_protocol.h"
#include "sync/session/setup.h"
#include "sync/session/state.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/engines.h"
#include "sync/strategy/options.h"
#include "sync/strategy/report.h"
#include "sync/strategy/strategy.h"
#include "sync/weight_source.h"

namespace tandem::sync {

struct WeightsMatch {
    bool match = false;
    std::string first_mismatch;  // the first tensor that differs; empty when all match
};

class Session {
  public:
    // Plans, makes what the mode needs and attaches the engine ranks (rank 0 passes them, the others none).
    // `source` is borrowed. Throws SyncError on every rank alike: engine and source hold different tensors, a
    // layout or a dtype that the mode cannot handle (modes.h).
    Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source, Engines engines,
            const SessionOptions& options = {});
    Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source,
            std::unique_ptr<engine::Engine> engine, const SessionOptions& options = {});
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Blocks until the engines serve the source's current values as `version`, which must grow from push to
    // push. The report's times are rank 0's; other ranks report their own gather.
    SyncReport push(std::int64_t version);

    // Compares what the engines really hold with what the trainer really holds: full tensors, gathered one by
    // one apart from the strategy and brought to the engine's dtype and layout, by XXH3-128. The same
    // answer on every rank.
    WeightsMatch weights_match();

    // Alias: where this rank may write the shard of its source's tensor `index` for the next push, so that it
    // need not be copied there; valid until that push. Undefined in other modes, and where this rank's shard
    // is not one run of the engine's tensor in the same dtype.
    Tensor writable(std::size_t index);

    // What a push brings, in the engines' weights: SyncReport::bytes.
    std::size_t bytes() const;
    // The bucket size and depth, who chose them, and the predicted times.
    const Tuning& tuning() const { return tuner_ ? tuner_->tuning() : untuned_; }
    State state() const { return state_.state(); }
    std::int64_t version() const { return state_.version(); }  // committed last; 0: none

  private:
    SyncContext context();
    void adapt();
    void prepare_ahead(const std::string& what, SyncReport& report);
    void update_engines(PushProtocol& protocol, std::int64_t version, PushStatus& status, SyncReport& report);
    void commit_ahead(std::int64_t version, PushStatus& status);
    void carry_out(const PushProtocol::Next& next, PushProtocol& protocol, std::int64_t version,
                   PushStatus& status, SyncReport& report);
    void release_memory(engine::Engine& engine);
    void try_resume(engine::Engine& engine);

    std::shared_ptr<comm::Communicator> world_;
    const WeightSource& source_;
    Engines engines_;
    const Device device_;  // of this rank's shards
    SessionOptions options_;
    Setup setup_;
    const Tuning untuned_;
    std::optional<Tuner> tuner_;  // none: a GPU's weights
    const HalfRange half_range_;
    Quantizer quantizer_;
    std::unique_ptr<SyncStrategy> strategy_;
    VersionState state_;
    std::vector<ops::Checksum> manifests_;  // [engine] of the version under way; empty: not yet asked for
};

}  // namespace tandem::sync
