// Supervised steps on given weights and given tokens: the loss of each step and the tokens/s. The twin of
// tests/bench/peers/torch_fsdp2.py, which writes the weights and the tokens, and of torch_pipeline.py; compare_train.sh,
// compare_tensor_parallel.sh and compare_pipeline.sh run both sides.
//   train_curve --init DIR --data DIR/data.json [--dtype fp32|bf16] [--ranks N] [--pp N] [--cp N] [--tp N]
//   [--sequence-parallel 0|1] [--loss-parallel 0|1] [--schedule NAME] [--stages-per-rank N] [--last-less N]
//   [--microbatches N] [--lr X]
// Prints one JSON object. Processor time hardly depends on what else runs: cpu_s is that of a step, the ranks' mean, and
// busy_s that of forward, backward and the sums of gradients, [rank].
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/mesh/dist_reduce.h"
#include "common/model/safetensors.h"
#include "common/ops/matmul.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Steps = std::vector<std::vector<std::vector<std::int32_t>>>;  // [step][sequence][token]

struct Run {
    std::string init;
    std::string data;
    std::string dtype = "fp32";
    int ranks = 2;
    int pp = 1;
    int cp = 1;
    int tp = 1;
    bool sequence_parallel = true;
    bool loss_parallel = true;
    pipeline::Options pipeline;
    float lr = 1e-4f;
    float weight_decay = 0;
};

Steps read_steps(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw ConfigError(file, "", "cannot be read");
    return nlohmann::json::parse(in).get<Steps>();
}

std::vector<Sample> samples_of(const std::vector<std::vector<std::int32_t>>& sequences) {
    std::vector<Sample> samples;
    for (const auto& tokens : sequences) {
        Sample& sample = samples.emplace_back();
        sample.tokens = tokens;
        sample.target_mask.assign(tokens.size(), 1);
    }
    return samples;
}

// Without the first: it touches all buffers for the first time.
double median(std::vector<double> values) {
    if (values.size() > 1) values.erase(values.begin());
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

double processor_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// [rank], on every rank.
std::vector<double> of_all_ranks(double value, comm::Communicator& world) {
    std::vector<double> values(static_cast<std::size_t>(world.size()));
    values[static_cast<std::size_t>(world.rank())] = value;
    reduce_sums(values, world);
    return values;
}

// [stage]: its first layer, and the one behind its last.
std::vector<std::array<int, 2>> stages_of(const Run& run, const model::ModelConfig& config) {
    std::vector<std::array<int, 2>> stages;
    if (run.pp == 1) return stages;
    const pipeline::Plan plan(run.pipeline, run.pp, static_cast<int>(config.num_hidden_layers));
    for (const DecoderPart& part : plan.parts()) stages.push_back({part.first_layer, part.end_layer});
    return stages;
}

PolicyOptions options_of(const Run& run, std::size_t sequences) {
    PolicyOptions options;
    options.compute_dtype = dtype_from_name(run.dtype);
    options.weight_decay = run.weight_decay;
    options.sequence_parallel = run.sequence_parallel;
    options.loss_parallel = run.loss_parallel;
    options.pipeline = run.pipeline;
    if (const int microbatches = run.pipeline.microbatches; microbatches > 0) {
        const int parts = run.ranks / run.pp / run.cp / run.tp * microbatches;
        enforce(sequences % static_cast<std::size_t>(parts) == 0,
                "{} sequences a step are not {} ranks' {} micro-batches", sequences, parts / microbatches,
                microbatches);
        options.micro_batch = static_cast<std::int64_t>(sequences) / parts;
        options.reduce_every_micro_batch = false;  // as the peer: set_requires_gradient_sync(last)
    }
    return options;
}

void run_rank(const Run& run) {
    const auto world =
        run.ranks == 1 ? comm::solo() : comm::connect_from_environment(Deadline::after_ms(60'000));
    world->set_timeout(std::chrono::minutes(5));
    const Steps steps = read_steps(run.data);
    const std::vector<int> degrees{run.pp, run.ranks / run.pp / run.cp / run.tp, run.cp, run.tp};
    Policy policy(DeviceMesh::create(world, degrees, {"pp", "dp", "cp", "tp"}),
                  model::read_model_config(run.init), options_of(run, steps.at(0).size()));
    const auto weights = model::Safetensors::open(run.init);
    for (const auto& [name, parameter] : policy.parameters()) {
        if (parameter.is_here()) policy.load_parameter(name, weights.tensor(name));
    }

    std::vector<double> losses, seconds, cpu_seconds, busy_seconds;
    for (const auto& sequences : steps) {
        const std::vector<Sample> samples = samples_of(sequences);
        world->barrier();
        const auto start = Clock::now();
        const double cpu_start = processor_seconds();
        losses.push_back(policy.accumulate(samples, supervised_loss()).loss);
        busy_seconds.push_back(processor_seconds() - cpu_start);
        policy.apply(run.lr);
        world->barrier();
        cpu_seconds.push_back(processor_seconds() - cpu_start);
        seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    const std::vector<double> busy = of_all_ranks(median(busy_seconds), *world);
    const std::vector<double> cpu = of_all_ranks(median(cpu_seconds), *world);
    if (world->rank() != 0) return;
    const double tokens = static_cast<double>(steps[0].size() * steps[0][0].size());
    const nlohmann::ordered_json result{{"dtype", run.dtype},
                                        {"ranks", run.ranks},
                                        {"pp", run.pp},
                                        {"stages", stages_of(run, policy.config())},
                                        {"tp", run.tp},
                                        {"threads_per_rank", ops::compute_threads()},
                                        {"tokens_per_step", tokens},
                                        {"median_s", median(seconds)},
                                        {"cpu_s", std::reduce(cpu.begin(), cpu.end()) / run.ranks},
                                        {"busy_s", busy},
                                        {"tokens_per_s", tokens / median(seconds)},
                                        {"losses", losses}};
    std::printf("%s\n", result.dump().c_str());
}

int curve_main(int argc, char** argv) {
    Run run;
    CLI::App app{
        "Losses of supervised steps. Example: train_curve --init DIR --data DIR/data.json --ranks 2"};
    app.add_option("--init", run.init, "Hugging Face directory")->required();
    app.add_option("--data", run.data, "token ids [step][sequence][token], JSON")->required();
    app.add_option("--dtype", run.dtype)->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_option("--ranks", run.ranks)->check(CLI::Range(1, 64));
    app.add_option("--pp", run.pp, "ranks of the pp axis; divides --ranks")->check(CLI::Range(1, 64));
    app.add_option("--cp", run.cp, "ranks of the cp axis; divides --ranks")->check(CLI::Range(1, 64));
    app.add_option("--tp", run.tp, "ranks of the tp axis; divides --ranks")->check(CLI::Range(1, 64));
    app.add_option("--sequence-parallel", run.sequence_parallel)->capture_default_str();
    app.add_option("--loss-parallel", run.loss_parallel)->capture_default_str();
    app.add_option("--schedule", run.pipeline.schedule, "with --pp")->capture_default_str();
    app.add_option("--stages-per-rank", run.pipeline.stages_per_rank,
                   "with --pp; default: the schedule's usual number")
        ->check(CLI::Range(1, 64));
    app.add_option("--last-less", run.pipeline.last_stage_less_layers,
                   "with --pp: layers that the head weighs")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    app.add_option("--microbatches", run.pipeline.microbatches,
                   "equal parts of a rank's sequences; default: as many as its memory asks for")
        ->check(CLI::Range(1, 4096));
    app.add_option("--lr", run.lr);
    app.add_option("--weight-decay", run.weight_decay);
    CLI11_PARSE(app, argc, argv);
    if (comm::launched_as_rank() || run.ranks == 1) {
        run_rank(run);
        return 0;
    }
    comm::LaunchOptions launch;
    launch.world_size = run.ranks;
    launch.command.assign(argv, argv + argc);
    const comm::LaunchResult result = comm::RankProcesses(launch).wait();
    if (result.exit_code != 0) std::fprintf(stderr, "%s\n", result.message.c_str());
    return result.exit_code;
}

}  // namespace
}  // namespace tandem::trainer

int main(int argc, char** argv) {
    try {
        return tandem::trainer::curve_main(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "train_curve: %s\n", error.what());
        return 1;
    }
}
