// Decode speed of the embedded engine at SmolLM2-135M's shapes, random weights, batch 1, 16 and 64, fp32 and
// bf16. The speed of light of a step: its products at the rate of large ones, or every weight read once,
// whichever takes longer, and then the sequences' pages read once; all rates of this run. With --sampling: what
// choosing tokens and their log-probs takes from the tokens a second, bf16, batch 64, the ways in turns.
//   engine_bench [--threads N] [--layers N] [--dtype NAME] [--batch N] [--steps N] [--sampling] [--json]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "common/ops/matmul.h"
#include "common/ops/sampling.h"
#include "engine_adapter/embedded/decoder.h"
#include "tests/bench/engine/smollm2.h"

namespace tandem::engine {
namespace {

constexpr std::int64_t kPromptTokens = 64;

struct Options {
    int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    std::int64_t layers = 30;
    std::vector<std::size_t> batches = {1, 16, 64};
    int steps = 24;  // a measurement; the median counts
};

// With one thread its CPU time counts, so that other programs of a shared machine do not; with several, wall
// time.
double now_seconds(int threads) {
    timespec time{};
    ::clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double median_seconds(int runs, int threads, const std::function<void()>& body) {
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
        const double start = now_seconds(threads);
        body();
        times.push_back(now_seconds(threads) - start);
    }
    std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
    return times[static_cast<std::size_t>(runs / 2)];
}

void fill(const ModelWeights& weights) {
    std::mt19937 random(1);
    for (const WeightSlot& slot : weights.slots()) {
        const Tensor tensor = Tensor::borrow(slot.memory, slot.info.shape, slot.info.dtype);
        for (std::int64_t i = 0; i < tensor.numel(); ++i) {
            const float value =
                slot.info.shape.size() == 1 ? 1.0f : (static_cast<float>(random() % 2001) - 1000.0f) * 5e-5f;
            if (tensor.dtype() == DType::float32) {
                tensor.data<float>()[i] = value;
            } else {
                tensor.data<bfloat16>()[i] = bfloat16(value);
            }
        }
    }
}

std::size_t weight_bytes(const ModelWeights& weights) {
    std::size_t total = 0;
    for (const WeightSlot& slot : weights.slots()) total += slot.memory.bytes;
    return total;
}

// Bytes a second at which `threads` threads read all weights, each its part of every tensor.
double read_rate(const ModelWeights& weights, int threads) {
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
    const auto part = [&](std::size_t index) {
        std::uint64_t sum = 0;
        for (const WeightSlot& slot : weights.slots()) {
            const std::size_t words = slot.memory.bytes / sizeof(std::uint64_t);
            const std::size_t begin = words * index / static_cast<std::size_t>(threads);
            const std::size_t end = words * (index + 1) / static_cast<std::size_t>(threads);
            const auto* data = reinterpret_cast<const std::uint64_t*>(slot.memory.data);
            std::uint64_t lanes[8] = {};  // or the sum, not the memory, would be measured
            for (std::size_t i = begin; i + 8 <= end; i += 8) {
                for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += data[i + lane];
            }
            sum = std::accumulate(lanes, lanes + 8, sum);
        }
        sums[index * 8] = sum;
    };
    const double seconds = median_seconds(5, threads, [&] {
        std::vector<std::thread> team;
        for (std::size_t i = 1; i < static_cast<std::size_t>(threads); ++i) team.emplace_back(part, i);
        part(0);
        for (std::thread& thread : team) thread.join();
    });
    if (sums[0] == 1) std::printf(" ");  // the sums are used
    return static_cast<double>(weight_bytes(weights)) / seconds;
}

// FLOP a second of products as large as the caches like.
double product_rate(DType dtype, int threads) {
    constexpr std::int64_t kSide = 1024;
    Stream stream = Stream::make_inline();
    const Tensor x = Tensor::zeros({kSide, kSide}, dtype, "bench");
    const Tensor weight = Tensor::zeros({kSide, kSide}, dtype, "bench");
    const Tensor y = Tensor::zeros({kSide, kSide}, DType::float32, "bench");
    const auto body = [&] { ops::linear(stream, x, weight, y); };
    body();
    return 2.0 * kSide * kSide * kSide / median_seconds(9, threads, body);
}

struct Rates {
    double read, product;  // bytes and FLOP a second
};

double light_seconds(const ModelWeights& weights, const model::ModelConfig& config, DType dtype,
                     std::size_t batch, int steps, const Rates& rates) {
    const auto rows = static_cast<double>(batch);
    const auto bytes = static_cast<double>(weight_bytes(weights));
    const double flop = 2.0 * rows * bytes / static_cast<double>(dtype_size(dtype));
    const auto page_bytes =
        static_cast<double>(KvCache::bytes_per_token(config, dtype)) * (kPromptTokens + steps / 2) * rows;
    return std::max(flop / rates.product, bytes / rates.read) + page_bytes / rates.read;
}

// Sequences with a prompt in the cache, and the step that decodes their next tokens.
struct Batch {
    Batch(KvCache& pages, std::size_t size, std::int64_t steps) : cache(pages), sequences(size) {
        for (std::size_t b = 0; b < size; ++b) {
            for (std::int64_t i = 0; i < kPromptTokens; ++i) {
                sequences[b].tokens.push_back(
                    static_cast<std::int32_t>((static_cast<std::int64_t>(b) * 977 + i * 31) % 49152));
            }
            step.tokens.push_back(7);
            step.lengths.push_back(static_cast<std::int32_t>(kPromptTokens + 1));
        }
        // Side by side, as sequences that grow together take them: no page lies beside the one before.
        for (std::int64_t i = 0; i < cache.pages_for(kPromptTokens + steps); ++i) {
            for (PrefillSequence& sequence : sequences) sequence.pages.push_back(cache.pool().allocate());
        }
        for (const PrefillSequence& sequence : sequences) step.block_tables.push_back(sequence.pages);
    }
    ~Batch() {
        for (const PrefillSequence& sequence : sequences) {
            for (const std::int32_t page : sequence.pages) cache.pool().release(page);
        }
    }
    KvCache& cache;
    std::vector<PrefillSequence> sequences;
    DecodeBatch step;
};

// Decodes `batch` sequences side by side; returns the median seconds of a step. The first step is checked
// against a prefill of the same tokens.
double decode_seconds(Decoder& decoder, KvCache& cache, std::size_t batch, int steps) {
    Batch all(cache, batch, steps + 2);
    DecodeBatch& step = all.step;
    decoder.prefill(all.sequences);
    const Tensor decoded = decoder.decode(step);
    PrefillSequence check = all.sequences[0];
    check.tokens.push_back(7);
    const Tensor prefilled = decoder.prefill({check});
    if (std::memcmp(decoded.raw(), prefilled.raw(), prefilled.bytes()) != 0) {
        std::fprintf(stderr, "decode and prefill differ: the figures below mean nothing\n");
        std::exit(1);
    }
    return median_seconds(steps, ops::compute_threads(), [&] {
        for (std::int32_t& length : step.lengths) ++length;
        decoder.decode(step);
    });
}

nlohmann::json measure(DType dtype, const Options& options) {
    const int threads = options.threads;
    const model::ModelConfig config = smollm2_135m(options.layers);
    Stream stream = Stream::make_compute({});
    ModelWeights weights(config, dtype, stream);
    fill(weights);
    const auto most = static_cast<std::int64_t>(std::ranges::max(options.batches));
    KvCache cache(config, dtype, (most + 1) * (kPromptTokens + options.steps + 16), 16);
    Decoder decoder(config, weights, cache, stream);
    const Rates rates{read_rate(weights, threads), product_rate(dtype, threads)};
    nlohmann::json rows = nlohmann::json::array();
    for (const std::size_t batch : options.batches) {
        const double seconds = decode_seconds(decoder, cache, batch, options.steps);
        const double light = light_seconds(weights, config, dtype, batch, options.steps, rates);
        const double tokens = static_cast<double>(batch) / seconds;
        rows.push_back({{"dtype", dtype_name(dtype)},
                        {"batch", batch},
                        {"threads", threads},
                        {"weight_mb", static_cast<double>(weight_bytes(weights)) / 1e6},
                        {"read_gb_per_s", rates.read / 1e9},
                        {"product_gflop_per_s", rates.product / 1e9},
                        {"step_ms", seconds * 1e3},
                        {"tokens_per_s", tokens},
                        {"speed_of_light_ms", light * 1e3},
                        {"ratio_to_speed_of_light", seconds / light}});
        std::fprintf(stderr,
                     "%-9s batch %2zu  %8.2f ms a step  %8.1f tokens/s  (light %.2f ms at %.1f GB/s and %.0f "
                     "GFLOP/s: %.2fx)\n",
                     std::string(dtype_name(dtype)).c_str(), batch, seconds * 1e3, tokens, light * 1e3,
                     rates.read / 1e9, rates.product / 1e9, seconds / light);
    }
    return rows;
}

struct Way {
    const char* name;
    ops::Sampling how;
    std::vector<double> seconds = {};  // of its steps
};

nlohmann::json measure_sampling(const Options& options) {
    const int threads = options.threads;
    constexpr std::size_t kBatch = 64;
    constexpr int kRounds = 16;
    std::vector<Way> ways = {{"greedy", {.temperature = 0.0f}},
                             {"greedy, log-probs", {.temperature = 0.0f, .logprob = true}},
                             {"temperature 1", {}},
                             {"temperature 1, log-probs", {.logprob = true}},
                             {"top-p 0.95, log-probs", {.top_p = 0.95f, .logprob = true}},
                             {"top-k 40, log-probs", {.top_k = 40, .logprob = true}},
                             {"min-p 0.05, log-probs", {.min_p = 0.05f, .logprob = true}}};
    const std::int64_t steps = kRounds * static_cast<std::int64_t>(ways.size()) + 2;
    const model::ModelConfig config = smollm2_135m(options.layers);
    Stream stream = Stream::make_compute({});
    ModelWeights weights(config, DType::bfloat16, stream);
    fill(weights);
    KvCache cache(config, DType::bfloat16, static_cast<std::int64_t>(kBatch) * (kPromptTokens + steps + 16),
                  16);
    Decoder decoder(config, weights, cache, stream);
    Batch batch(cache, kBatch, steps);
    decoder.prefill(batch.sequences);
    decoder.decode(batch.step);  // warms up
    std::mt19937 random(1);
    std::vector<float> logprobs(kBatch);
    for (int round = 0; round < kRounds; ++round) {
        for (Way& way : ways) {
            std::vector<ops::Sampling> how(kBatch, way.how);
            for (std::size_t row = 0; row < kBatch; ++row) {
                how[row].row = static_cast<std::int32_t>(row);
                how[row].uniform = std::uniform_real_distribution<double>(0, 1)(random);
            }
            way.seconds.push_back(median_seconds(1, threads, [&] {
                for (std::int32_t& length : batch.step.lengths) ++length;
                ops::sample_tokens(stream, decoder.decode(batch.step), how, batch.step.tokens, logprobs);
                stream.synchronize();
            }));
        }
    }
    nlohmann::json rows = nlohmann::json::array();
    double greedy = 0;
    for (Way& way : ways) {
        std::nth_element(way.seconds.begin(), way.seconds.begin() + kRounds / 2, way.seconds.end());
        const double rate = static_cast<double>(kBatch) / way.seconds[kRounds / 2];
        if (greedy == 0) greedy = rate;
        rows.push_back({{"sampling", way.name},
                        {"batch", kBatch},
                        {"threads", threads},
                        {"tokens_per_s", rate},
                        {"ratio_to_greedy", rate / greedy}});
        std::fprintf(stderr, "%-26s batch %zu  %8.2f ms a step  %8.1f tokens/s  %.2f of greedy\n", way.name,
                     kBatch, way.seconds[kRounds / 2] * 1e3, rate, rate / greedy);
    }
    return rows;
}

}  // namespace
}  // namespace tandem::engine

int main(int argc, char** argv) {
    CLI::App app("Decode speed of the embedded engine, SmolLM2-135M shapes", "engine_bench");
    tandem::engine::Options options;
    std::string only;
    bool json = false, sampling = false;
    app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--layers", options.layers)->check(CLI::Range(1, 30))->capture_default_str();
    app.add_option("--dtype", only, "float32 or bfloat16; both if not given")
        ->check(CLI::IsMember({"float32", "bfloat16"}));
    app.add_option("--batch", options.batches)->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--steps", options.steps)->check(CLI::Range(1, 4096))->capture_default_str();
    app.add_flag("--sampling", sampling, "Greedy, temperature 1, with and without log-probs");
    app.add_flag("--json", json);
    CLI11_PARSE(app, argc, argv);
    tandem::ops::set_compute_threads(options.threads);
    std::fprintf(
        stderr, "SmolLM2-135M shapes, %lld layers, prompt 64 tokens, %d threads of %u cores, medians\n",
        static_cast<long long>(options.layers), options.threads, std::thread::hardware_concurrency());
    nlohmann::json all = nlohmann::json::array();
    if (sampling) {
        all = tandem::engine::measure_sampling(options);
    } else {
        for (const tandem::DType dtype : {tandem::DType::float32, tandem::DType::bfloat16}) {
            if (!only.empty() && only != tandem::dtype_name(dtype)) continue;
            for (const auto& row : tandem::engine::measure(dtype, options)) all.push_back(row);
        }
    }
    if (json) std::printf("%s\n", all.dump(2).c_str());
    return 0;
}
