#include "trainer/main/sync_memory.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "trainer/config/pipeline.h"

namespace tandem::trainer {

std::map<std::string, std::int64_t> sync_memory(const RunConfig& c, const model::ModelConfig& model,
                                                const SyncNeeds& needs, bool on_rank_0) {
    const auto element = static_cast<std::int64_t>(dtype_size(dtype_from_name(c.engine.dtype)));
    const std::int64_t weights = model.parameter_count() * element;
    const auto bucket = static_cast<std::int64_t>(needs.bucket_bytes);
    const bool on_gpu = needs.from_gpu;

    std::map<std::string, std::int64_t> result;
    // Rank 0 broadcasts from private memory, which goes through two windows of 2 MiB.
    if (on_rank_0 && c.world_size() > 1) result["comm_staging"] = 4 << 20;
    const auto cores = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
    const std::int64_t copied = on_gpu ? weights : weights / std::min(c.world_size(), cores);
    // On a GPU with enough free memory.
    const std::size_t most = speed_of_light_bytes(on_gpu, std::numeric_limits<std::uint64_t>::max());
    result["speed of light"] = 2 * std::min(copied, static_cast<std::int64_t>(most));
    if (on_rank_0 && needs.slots > 0) result["staging"] = needs.slots * std::min(weights, bucket);
    if (on_rank_0 && needs.arena_copies > 0) result["alias arena"] = needs.arena_copies * weights;
    if (needs.keeps_base) result["delta base"] = weights / c.world_size();
    if (c.run.device == "cuda" && !on_gpu) {
        result["sync mirror"] = 4 * largest_shard(c, model);
    }
    return result;
}

}  // namespace tandem::trainer
