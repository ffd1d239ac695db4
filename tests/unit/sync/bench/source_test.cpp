// Synthetic weights: replicas of a tensor have one value, also the table that two stages of a pipeline have, and no two tensors
// the same.
#include "sync/bench/source.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "common/comm/launch.h"
#include "common/ops/batched_copy.h"
#include "sync/bench/bench_options.h"

namespace tandem::sync {
namespace {

using Sums = std::map<std::string, ops::Checksum>;

Sums sums_of(const SyntheticSource& source) {
    Sums sums;
    for (const NamedTensor& tensor : source.tensors())
        sums[tensor.name] = ops::checksum(tensor.tensor.full_tensor().span());
    return sums;
}

TEST(SyntheticSource, ReplicasAreEqualAndTensorsAreNot) {
    const std::vector<model::ParameterSpec> model = model_tensors("tiny");
    std::vector<engine::TensorInfo> tensors;
    for (const model::ParameterSpec& tensor : model)
        tensors.push_back({tensor.name, tensor.shape, DType::bfloat16, {}});
    for (const char* text :
         {"dp=4,dp_replicate=2,tp=2", "dp=2,tp=2,pp=2", "pp=4", "dp=2,dp_replicate=2,pp=3"}) {
        SCOPED_TRACE(text);
        const TrainerMesh mesh = TrainerMesh::parse(text);
        std::mutex mutex;
        std::size_t bytes = 0;       // of all ranks
        std::vector<Sums> found(3);  // made, some changed, all changed
        const auto add = [&](std::size_t when, const Sums& sums) {
            const std::lock_guard lock(mutex);
            for (const auto& [name, sum] : sums)
                EXPECT_EQ(found[when].emplace(name, sum).first->second, sum) << name;
        };
        comm::run_threads(static_cast<int>(mesh.ranks()),
                          [&](const std::shared_ptr<comm::Communicator>& world) {
                              const DeviceMesh all = mesh.over(world);
                              SyntheticSource source(tensors, all, holdings_of(all, model), DType::bfloat16);
                              add(0, sums_of(source));
                              for (const NamedTensor& tensor : source.tensors()) {
                                  const std::lock_guard lock(mutex);
                                  bytes += tensor.tensor.local().bytes();
                              }
                              source.change(0.3);
                              add(1, sums_of(source));
                              source.change(1);
                              add(2, sums_of(source));
                          });
        BenchOptions options;
        options.shapes = "tiny";
        options.mesh = mesh;
        EXPECT_EQ(options.held_bytes(), bytes);
        for (const Sums& sums : found) {
            EXPECT_EQ(sums.size(), tensors.size());
            std::set<std::string>
                values;  // of layers on two stages, too: a mistaken one would not be seen else
            for (const auto& [name, sum] : sums) values.insert(ops::to_hex(sum));
            EXPECT_EQ(values.size(), tensors.size());
        }
        for (const char* name : {model::kEmbedding, "model.layers.1.mlp.up_proj.weight"}) {
            EXPECT_NE(found[0].at(name), found[1].at(name)) << name;
            EXPECT_NE(found[1].at(name), found[2].at(name)) << name;
        }
    }
}

}  // namespace
}  // namespace tandem::sync
