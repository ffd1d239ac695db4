// Plans of the trillion-parameter mixture of experts, from 256 trainer ranks to 128 engine ranks: how long
// making one takes, and writing out the moves of one rank. One core.
//   plan_bench [--benchmark_filter=make]
#include <benchmark/benchmark.h>

#include "common/error.h"
#include "sync/bench/plan_report.h"
#include "sync/bench/shapes.h"
#include "sync/plan/reshard.h"

namespace {

using namespace tandem;
using namespace tandem::sync;

enum Trainer { all_shards, expert_mesh, replicas_of_shards };

PlanReportOptions options_of(std::int64_t trainer) {
    PlanReportOptions options;
    options.shapes = TANDEM_SOURCE_DIR "/examples/shapes/moe-1t-61x384.json";
    options.mesh.sizes = trainer == replicas_of_shards ? std::vector<int>{2, 128} : std::vector<int>{256};
    if (trainer == expert_mesh) options.expert_mesh = {64, 4};
    options.engine = {8, 128, true};
    options.source_dtype = DType::float32;
    return options;
}

struct Layouts {
    SourceLayout source;
    EngineLayout engine;
};

Layouts layouts_of(std::int64_t trainer) {
    const PlanReportOptions options = options_of(trainer);
    const auto model = model_tensors(options.shapes);
    return {trainer_layout(model, options), engine_layout(model, options.engine, options.engine_dtype)};
}

// The first iteration's check: every engine rank receives its bytes, once.
void check(const ReshardPlan& plan) {
    std::uint64_t sent = 0;
    for (const std::uint64_t bytes : plan.bytes_from()) sent += bytes;
    std::uint64_t to = 0;
    for (const Move& move : plan.moves_to(127))
        to += static_cast<std::uint64_t>(move.rows * move.row_elements);
    require(sent == plan.bytes() && to * 2 == plan.bytes_to()[127], "the plan is wrong");
}

void make(benchmark::State& state) {
    const Layouts layouts = layouts_of(state.range(0));
    check(ReshardPlan::make(layouts.source, layouts.engine));
    for (auto _ : state) {
        state.PauseTiming();
        Layouts copy = layouts;
        state.ResumeTiming();
        const ReshardPlan plan = ReshardPlan::make(std::move(copy.source), std::move(copy.engine));
        state.PauseTiming();
        state.counters["moves"] = static_cast<double>(plan.move_count());
        state.counters["patterns"] = static_cast<double>(plan.pattern_count());
        state.ResumeTiming();
    }
}

template <std::vector<Move> (ReshardPlan::*kMoves)(int) const>
void expand(benchmark::State& state) {
    Layouts layouts = layouts_of(state.range(0));
    const ReshardPlan plan = ReshardPlan::make(std::move(layouts.source), std::move(layouts.engine));
    check(plan);
    for (auto _ : state) {
        const auto moves = (plan.*kMoves)(5);
        state.counters["moves"] = static_cast<double>(moves.size());
    }
}

void trainers(benchmark::internal::Benchmark* bench) {
    bench->ArgName("trainer")->Arg(all_shards)->Arg(expert_mesh)->Arg(replicas_of_shards);
    bench->Unit(benchmark::kMillisecond);
}

BENCHMARK(make)->Apply(trainers);
BENCHMARK(expand<&ReshardPlan::moves_to>)->Name("moves_to")->Apply(trainers);
BENCHMARK(expand<&ReshardPlan::moves_from>)->Name("moves_from")->Apply(trainers);

}  // namespace

BENCHMARK_MAIN();
