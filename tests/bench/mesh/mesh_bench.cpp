// What 16,384 ranks cost: a mesh with all its groups, every axis of a parallel layout, and `tandem-train
// inspect mesh` from start to end of the process. One core.
//   mesh_bench [--benchmark_filter=inspect]
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "common/mesh/parallel_dims.h"

namespace {

using namespace tandem;

constexpr int kRanks = 16384;

std::size_t ranks_in(const DeviceMesh& mesh, const std::string& axis) {
    std::size_t ranks = 0;
    for (const auto& group : mesh.groups(axis)) ranks += group.size();
    return ranks;
}

void mesh(benchmark::State& state) {
    for (auto _ : state) {
        const DeviceMesh mesh = DeviceMesh::abstract({8, 16, 16, 8}, {"pp", "dp", "cp", "tp"}, 12345);
        std::size_t ranks = 0;
        for (const auto& axis : mesh.names()) ranks += ranks_in(mesh, axis);
        require(ranks == 4 * kRanks, "a rank is in no group, or in two");
    }
}

void parallel_dims(benchmark::State& state) {
    for (auto _ : state) {
        const ParallelDims dims({4, 16, 4, 8, 8, 16, 8}, kRanks, 777);
        std::size_t ranks = 0;
        for (const std::string& axis : ParallelDims::axis_names()) {
            const DeviceMesh& mesh = dims.axis_mesh(axis);
            ranks += ranks_in(mesh, mesh.names()[0]);
        }
        require(ranks == 10 * kRanks, "a rank is in no group, or in two");
    }
}

void inspect(benchmark::State& state) {
    const std::string command = TANDEM_BIN_DIR
        "/tandem-train inspect mesh --world-size 16384 --dp-replicate 4 --cp 4 --tp 8 --pp 8 --ep 16 --etp 8 "
        "--json "
        "> /dev/null";
    for (auto _ : state) require(std::system(command.c_str()) == 0, "it failed: {}", command);
}

BENCHMARK(mesh)->Unit(benchmark::kMillisecond);
BENCHMARK(parallel_dims)->Unit(benchmark::kMillisecond);
BENCHMARK(inspect)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
