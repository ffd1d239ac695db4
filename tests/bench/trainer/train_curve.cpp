// Supervised steps on given weights and given tokens: the loss of each step and the tokens/s. The twin of
// tests/bench/peers/torch_fsdp2.py, which writes the weights and the tokens; compare_train.sh runs both.
//   train_curve --init DIR --data DIR/data.json [--dtype fp32|bf16] [--ranks N] [--cp N] [--tp N]
//   [--sequence-parallel 0|1] [--loss-parallel 0|1] [--lr X]
// Prints one JSON object; cpu_s is the processor time of a step on rank 0, which hardly depends on what else runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/comm/launch.h"
#include "common/error.h"
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
    int cp = 1;
    int tp = 1;
    bool sequence_parallel = true;
    bool loss_parallel = true;
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

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void run_rank(const Run& run) {
    const auto world =
        run.ranks == 1 ? comm::solo() : comm::connect_from_environment(Deadline::after_ms(60'000));
    world->set_timeout(std::chrono::minutes(5));
    const Steps steps = read_steps(run.data);
    PolicyOptions options;
    options.compute_dtype = dtype_from_name(run.dtype);
    options.weight_decay = run.weight_decay;
    options.sequence_parallel = run.sequence_parallel;
    options.loss_parallel = run.loss_parallel;
    const std::vector<int> degrees{run.ranks / run.cp / run.tp, run.cp, run.tp};
    Policy policy(DeviceMesh::create(world, degrees, {"dp", "cp", "tp"}), model::read_model_config(run.init),
                  options);
    const auto weights = model::Safetensors::open(run.init);
    for (const auto& [name, parameter] : policy.parameters())
        policy.load_parameter(name, weights.tensor(name));

    std::vector<double> losses, seconds, cpu_seconds;
    for (const auto& sequences : steps) {
        const std::vector<Sample> samples = samples_of(sequences);
        world->barrier();
        const auto start = Clock::now();
        const std::clock_t cpu_start = std::clock();
        losses.push_back(policy.accumulate(samples, supervised_loss()).loss);
        policy.apply(run.lr);
        world->barrier();
        cpu_seconds.push_back(static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
        seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    if (world->rank() != 0) return;
    for (std::vector<double>* each : {&seconds, &cpu_seconds}) {
        if (each->size() > 1) each->erase(each->begin());  // first touch of all buffers
    }
    const double tokens = static_cast<double>(steps[0].size() * steps[0][0].size());
    const nlohmann::ordered_json result{{"dtype", run.dtype},
                                        {"ranks", run.ranks},
                                        {"tp", run.tp},
                                        {"threads_per_rank", ops::compute_threads()},
                                        {"tokens_per_step", tokens},
                                        {"median_s", median(seconds)},
                                        {"cpu_s", median(cpu_seconds)},
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
    app.add_option("--cp", run.cp, "ranks of the cp axis; divides --ranks")->check(CLI::Range(1, 64));
    app.add_option("--tp", run.tp, "ranks of the tp axis; divides --ranks")->check(CLI::Range(1, 64));
    app.add_option("--sequence-parallel", run.sequence_parallel)->capture_default_str();
    app.add_option("--loss-parallel", run.loss_parallel)->capture_default_str();
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
