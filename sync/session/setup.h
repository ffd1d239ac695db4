// The set-up of a session: layouts of source and engines, and the plan that follows; equal on every rank.
#pragma once

#include <optional>
#include <vector>

#include "sync/codec/scales.h"
#include "sync/plan/reshard.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/engines.h"
#include "sync/strategy/options.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// Fills in bucket_bytes and depth where they are 0.
SessionOptions choose(SessionOptions options, Device device = {});

// The device of this rank's shards; nothing: it has no element. Throws InvalidArgument: they are on several.
std::optional<Device> device_of(const WeightSource& source);
// Collective. The same, and where this rank has no element the device of the first rank that has: all ranks choose buckets
// and memory by it. Shards on several devices are the CPU's here: make_setup reports them.
Device shared_device(comm::Communicator& world, const WeightSource& source);

struct Setup {
    ReshardPlan plan;
    std::vector<int> local;  // plan's source tensor → index in this rank's source, -1: not here
    std::vector<QuantizedTensor> quantized;
};

// False: not compared, because one of the two does not say what it is. Throws BadInput naming keys and both values: the
// engine would compute something else with the source's weights.
bool require_same_architecture(const WeightSource& source, const engine::Engine& engine);
// Logs where one that does not say its own was started with a directory of another: it may have been told more than that, so
// it is no reason to refuse it.
void warn_of_another_directory(const WeightSource& source, const engine::Engine& engine);

// Collective. `engines` are rank 0's, none elsewhere. Throws SyncError on every rank; among others where an engine is of
// another architecture than the source, where weights are on GPUs here and not there, or a mode cannot bring them from there.
Setup make_setup(comm::Communicator& world, const WeightSource& source, const Engines& engines,
                 const SessionOptions& options);

}  // namespace tandem::sync
