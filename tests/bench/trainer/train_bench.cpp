// Train-step tokens/s (forward, backward, clip, AdamW) of the quickstart's model and of SmolLM2-135M's and Qwen2.5-0.5B's
// shapes, in float32 and bfloat16, on one rank and on two processes. Model FLOPs are set against the rate of
// one matrix product measured in the same run: a number that says how much of the machine the step uses.
//
//   train_bench [--model tiny|smollm2|qwen2.5|all] [--layers N] [--dtype fp32|bf16|all] [--ranks 1|2|0] [--cp N] [--tp N]
//   [--sequence-parallel 0|1] [--loss-parallel 0|1] [--steps N] [--rows B] [--length S]
//
// --ranks 0 runs one and two. --ranks 4 --cp 2 --rows 32 --length 11 is the quickstart's warm start. A step has B sequences
// for each rank, whatever axis it is on: with --ranks 2, --tp 2 is the same work as without. The first step is checked
// (finite, close to log(vocab)) and dropped; medians are printed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/ops/matmul.h"
#include "sync/bench/shapes.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {
namespace {

using Clock = std::chrono::steady_clock;

struct Run {
    std::string model;
    std::string dtype;
    int ranks = 1;
    int cp = 1;  // of the ranks
    int tp = 1;  // of the ranks
    bool sequence_parallel = true;
    bool loss_parallel = true;
    int layers = 0;  // 0: by model
    int steps = 0;   // 0: by model
    int rows = 0;    // sequences per rank; 0: by model
    int length = 0;

    int dp() const { return ranks / cp / tp; }
};

model::ModelConfig tiny() {  // examples/quickstart
    model::ModelConfig c;
    c.vocab_size = 16;
    c.hidden_size = 64;
    c.intermediate_size = 192;
    c.num_hidden_layers = 2;
    c.num_attention_heads = 4;
    c.num_key_value_heads = 2;
    c.head_dim = 16;
    c.rope_theta = 100;
    return c;
}

model::ModelConfig config_of(const Run& run) {
    model::ModelConfig c =
        run.model == "tiny" ? tiny()
                            : sync::model_by_name(run.model == "smollm2" ? "SmolLM2-135M" : "Qwen2.5-0.5B");
    c.max_position_embeddings = 2048;
    if (run.layers != 0) c.num_hidden_layers = run.layers;
    return c;
}

Run with_defaults(Run run) {
    const bool tiny = run.model == "tiny";
    if (run.steps == 0) run.steps = tiny ? 40 : 3;
    if (run.rows == 0) run.rows = tiny ? 64 : 4;
    if (run.length == 0) run.length = tiny ? 32 : 512;
    return run;
}

DType dtype_of_run(const Run& run) {
    return run.dtype == "bf16" ? DType::bfloat16 : DType::float32;
}

// Of one token, forward and backward: 6 a weight that is multiplied, and causal attention.
double flops_per_token(const model::ModelConfig& c, int length) {
    double weights = static_cast<double>(c.parameter_count());
    if (!c.tie_word_embeddings) weights -= static_cast<double>(c.vocab_size * c.hidden_size);
    const double attention =
        static_cast<double>(c.num_hidden_layers * c.num_attention_heads * c.head_dim) * length;
    return 6 * weights + 6 * attention;  // 4 S H D forward, half of it causal; backward twice the forward
}

std::vector<Sample> batch_of(const Run& run, std::int64_t vocab) {
    std::vector<Sample> samples;
    std::uint64_t state = 1;
    for (int row = 0; row < run.rows * run.ranks; ++row) {
        Sample& sample = samples.emplace_back();
        for (int i = 0; i < run.length; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sample.tokens.push_back(
                static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocab)));
        }
        sample.target_mask.assign(sample.tokens.size(), 1);
    }
    return samples;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// FLOP/s of one thread on a product of the SmolLM2 feed-forward's size, with nothing beside it here.
double matmul_rate(DType dtype) {
    constexpr std::int64_t m = 1024, k = 576, n = 1536;
    Stream stream = Stream::make_inline();
    const Tensor a = Tensor::zeros({m, k}, dtype, "bench");
    const Tensor b = Tensor::zeros({n, k}, dtype, "bench");
    const Tensor c = Tensor::zeros({m, n}, dtype, "bench");
    std::vector<double> seconds;
    for (int i = 0; i < 12; ++i) {
        const auto start = Clock::now();
        ops::linear(stream, a, b, c);
        seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    return 2.0 * m * k * n / median(seconds);
}

void bench_rank(const Run& run) {
    auto world = run.ranks == 1 ? comm::solo() : comm::connect_from_environment(Deadline::after_ms(60'000));
    world->set_timeout(std::chrono::minutes(5));
    const bool first = world->rank() == 0;
    const auto config = config_of(run);
    PolicyOptions options;
    options.compute_dtype = dtype_of_run(run);
    options.sequence_parallel = run.sequence_parallel;
    options.loss_parallel = run.loss_parallel;
    Policy policy(DeviceMesh::create(world, {run.dp(), run.cp, run.tp}, {"dp", "cp", "tp"}), config, options);
    const auto samples = batch_of(run, config.vocab_size);
    const double tokens = static_cast<double>(samples.size()) * run.length;
    const double flops = tokens * flops_per_token(config, run.length);
    // What else runs on a machine changes its product rate within seconds: a step is held to that before and behind it.
    std::vector<double> seconds, rates, ratios;
    for (int step = 0; step <= run.steps; ++step) {
        if (first && step > 0) rates.push_back(matmul_rate(options.compute_dtype));  // the other ranks wait
        world->barrier();
        const auto start = Clock::now();
        const StepStats stats = policy.accumulate(samples, supervised_loss());
        policy.apply(1e-4);
        const double taken = std::chrono::duration<double>(Clock::now() - start).count();
        world->barrier();
        if (step > 0) {
            seconds.push_back(taken);
            continue;
        }
        const double expected = std::log(static_cast<double>(config.vocab_size));
        require(std::abs(stats.loss - expected) < 0.5, "first loss {} is not near log(vocab) = {}",
                stats.loss, expected);
    }
    if (!first) return;
    rates.push_back(matmul_rate(options.compute_dtype));
    for (std::size_t i = 0; i < seconds.size(); ++i)
        ratios.push_back(flops / seconds[i] / run.ranks / ((rates[i] + rates[i + 1]) / 2));
    std::printf("%-8s %-5s %dx%dx%d %8.1f  (%.1f-%.1f, n=%zu)  %10.0f  %8.2f  %8.2f  %5.2f\n",
                run.model.c_str(), run.dtype.c_str(), run.dp(), run.cp, run.tp, median(seconds) * 1e3,
                *std::min_element(seconds.begin(), seconds.end()) * 1e3,
                *std::max_element(seconds.begin(), seconds.end()) * 1e3, seconds.size(),
                tokens / median(seconds), flops / median(seconds) * 1e-9, median(rates) * 1e-9,
                median(ratios));
    std::fflush(stdout);
}

std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown CPU";
}

int run_processes(const Run& run, const std::string& program) {
    comm::LaunchOptions launch;
    launch.world_size = run.ranks;
    launch.command = {program, "--model", run.model, "--dtype", run.dtype};
    for (const auto& [option, value] : {std::pair{"--ranks", run.ranks},
                                        {"--cp", run.cp},
                                        {"--tp", run.tp},
                                        {"--sequence-parallel", int{run.sequence_parallel}},
                                        {"--loss-parallel", int{run.loss_parallel}},
                                        {"--layers", run.layers},
                                        {"--steps", run.steps},
                                        {"--rows", run.rows},
                                        {"--length", run.length}}) {
        launch.command.insert(launch.command.end(), {option, std::to_string(value)});
    }
    const comm::LaunchResult result = comm::RankProcesses(launch).wait();
    if (result.exit_code != 0) std::fprintf(stderr, "%s\n", result.message.c_str());
    return result.exit_code;
}

std::vector<std::string> choices(const std::string& chosen, const std::vector<std::string>& all) {
    return chosen == "all" ? all : std::vector{chosen};
}

int bench_all(const Run& asked, const std::string& program, const std::string& command) {
    std::printf("hardware: %s, %u threads; one compute thread a rank\ncommand:  %s\n", cpu_name().c_str(),
                std::thread::hardware_concurrency(), command.c_str());
    std::printf("%-8s %-5s %-5s %8s  %-22s %10s  %8s  %8s  %5s\n", "model", "dtype", "mesh", "ms/step",
                "(range)", "tokens/s", "GFLOP/s", "matmul", "ratio");
    std::fflush(stdout);
    for (const std::string& model : choices(asked.model, {"tiny", "smollm2", "qwen2.5"})) {
        for (const std::string& dtype : choices(asked.dtype, {"fp32", "bf16"})) {
            for (const int ranks : asked.ranks == 0 ? std::vector{1, 2} : std::vector{asked.ranks}) {
                Run run = asked;
                run.model = model;
                run.dtype = dtype;
                run.ranks = ranks;
                run = with_defaults(run);
                if (ranks == 1) {
                    bench_rank(run);
                } else if (const int code = run_processes(run, program); code != 0) {
                    return code;
                }
            }
        }
    }
    return 0;
}

int bench_main(int argc, char** argv) {
    Run run{"all", "all", 0};
    CLI::App app{"Train-step tokens/s. Example: train_bench --model tiny --dtype fp32 --ranks 2"};
    app.add_option("--model", run.model)->check(CLI::IsMember({"tiny", "smollm2", "qwen2.5", "all"}));
    app.add_option("--dtype", run.dtype)->check(CLI::IsMember({"fp32", "bf16", "all"}));
    app.add_option("--ranks", run.ranks, "0: one, then two")->check(CLI::Range(0, 64));
    app.add_option("--cp", run.cp, "ranks of the cp axis; divides --ranks")->check(CLI::Range(1, 64));
    app.add_option("--tp", run.tp, "ranks of the tp axis; divides --ranks")->check(CLI::Range(1, 64));
    app.add_option("--sequence-parallel", run.sequence_parallel)->capture_default_str();
    app.add_option("--loss-parallel", run.loss_parallel)->capture_default_str();
    app.add_option("--layers", run.layers, "0: by model");
    app.add_option("--steps", run.steps, "0: by model");
    app.add_option("--rows", run.rows, "sequences a rank; 0: by model");
    app.add_option("--length", run.length, "tokens a sequence; 0: by model");
    CLI11_PARSE(app, argc, argv);
    if (comm::launched_as_rank()) {
        bench_rank(run);
        return 0;
    }
    std::string command = argv[0];
    for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
    return bench_all(run, argv[0], command);
}

}  // namespace
}  // namespace tandem::trainer

int main(int argc, char** argv) {
    try {
        return tandem::trainer::bench_main(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "train_bench: %s\n", error.what());
        return 1;
    }
}
