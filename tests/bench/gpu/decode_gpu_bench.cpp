// Decode of the embedded engine on the first GPU, with and without CUDA graphs: a step of the decoder, and a
// step with its tokens sampled, at the shapes of SmolLM2-135M and Qwen3-4B in bfloat16, random weights.
// Beside each the time that reading every weight once would take at the rate of a plain copy of the same run.
//   decode_gpu_bench [--small] [--out FILE.json]
// Without a GPU it says so and ends with 2. --small: a rehearsal, also on the emulated GPU (gpu_bench.h).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "common/device/devices.h"
#include "common/error.h"
#include "common/ops/sampling.h"
#include "engine_adapter/embedded/decoder.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::int64_t kPromptTokens = 200;  // steps stay in one width of the tables
constexpr int kSteps = 40;
constexpr std::int64_t kPageSize = 16;

model::ModelConfig shapes(const std::string& name) {
    model::ModelConfig config;
    if (name == "tiny") {
        config.vocab_size = 512;
        config.hidden_size = 64;
        config.intermediate_size = 192;
        config.num_hidden_layers = 2;
        config.num_attention_heads = 4;
        config.num_key_value_heads = 2;
        config.head_dim = 16;
        config.max_position_embeddings = 512;
        return config;
    }
    const bool small = name == "SmolLM2-135M";
    config.vocab_size = small ? 49152 : 151936;
    config.hidden_size = small ? 576 : 2560;
    config.intermediate_size = small ? 1536 : 9728;
    config.num_hidden_layers = small ? 30 : 36;
    config.num_attention_heads = small ? 9 : 32;
    config.num_key_value_heads = small ? 3 : 8;
    config.head_dim = small ? 64 : 128;
    config.max_position_embeddings = 8192;
    config.qk_norm = !small;
    return config;
}

// Seconds of a call, the median of `runs`.
double seconds_of(Stream& stream, int runs, const std::function<void()>& body) {
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
        stream.synchronize();
        const auto start = std::chrono::steady_clock::now();
        body();
        stream.synchronize();
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
    return times[static_cast<std::size_t>(runs / 2)];
}

// Bytes read a second by a copy on the device, which writes as many.
double copy_rate(Stream& stream, bool small) {
    const std::int64_t bytes = std::int64_t{1} << (small ? 20 : 30);
    const Tensor from = Tensor::zeros(stream, {bytes}, DType::uint8, "bench");
    const Tensor to = Tensor::zeros(stream, {bytes}, DType::uint8, "bench");
    return 2.0 * static_cast<double>(bytes) / seconds_of(stream, 7, [&] { copy(stream, from, to); });
}

void fill(Stream& stream, const ModelWeights& weights) {
    std::mt19937 random(1);
    Tensor pattern = Tensor::empty({1 << 22}, DType::bfloat16, "bench");
    for (bfloat16& value : pattern.values<bfloat16>())
        value = bfloat16((static_cast<float>(random() % 2001) - 1000.0f) * 5e-5f);
    const Tensor there = pattern.to(stream, stream.device(), "bench");
    for (const WeightSlot& slot : weights.slots()) {
        for (std::size_t at = 0; at < slot.memory.bytes; at += there.bytes()) {
            const std::size_t part = std::min(there.bytes(), slot.memory.bytes - at);
            copy(stream, ConstSpan(there.raw(), part), slot.memory.subspan(at, part));
        }
    }
    stream.synchronize();
}

struct Batch {
    Batch(KvCache& cache, std::size_t count, std::int64_t vocab) {
        for (std::size_t b = 0; b < count; ++b) {
            PrefillSequence& sequence = prompts.emplace_back();
            for (std::int64_t i = 0; i < kPromptTokens; ++i)
                sequence.tokens.push_back(
                    static_cast<std::int32_t>((static_cast<std::int64_t>(b) * 977 + i * 31) % vocab));
            for (std::int64_t i = 0; i < cache.pages_for(kPromptTokens + 50); ++i)
                sequence.pages.push_back(cache.pool().allocate());
            step.tokens.push_back(7);
            step.lengths.push_back(static_cast<std::int32_t>(kPromptTokens + 1));
            step.block_tables.push_back(sequence.pages);
            how.push_back({.row = static_cast<std::int32_t>(b), .uniform = 0.37, .logprob = true});
        }
        tokens.resize(count);
        logprobs.resize(count);
    }
    std::vector<PrefillSequence> prompts;
    DecodeBatch step;
    std::vector<ops::Sampling> how;
    std::vector<std::int32_t> tokens;
    std::vector<float> logprobs;
};

json measure(const std::string& name, Stream& stream, double rate) {
    const model::ModelConfig config = shapes(name);
    ModelWeights weights(config, DType::bfloat16, stream);
    fill(stream, weights);
    double bytes = 0;
    for (const WeightSlot& slot : weights.slots()) bytes += static_cast<double>(slot.memory.bytes);
    json rows = json::array();
    for (const std::size_t count : {1u, 8u, 64u}) {
        std::vector<float> first;
        for (const bool graphs : {false, true}) {
            KvCache cache(config, DType::bfloat16, static_cast<std::int64_t>(count) * 256, kPageSize,
                          stream.device());
            Decoder decoder(config, weights, cache, stream, true, graphs);
            Batch batch(cache, count, config.vocab_size);
            decoder.prefill(batch.prompts);
            for (int i = 0; i < 3; ++i) decoder.decode(batch.step);  // as it is, recorded, replayed
            const std::vector<float> logits = decoder.decode(batch.step).to_host(stream).to_vector<float>();
            if (first.empty()) first = logits;
            if (std::memcmp(first.data(), logits.data(), logits.size() * sizeof(float)) != 0)
                throw Error("a replayed step gives other logits than the step itself");
            if (decoder.graphs().replayed != (graphs ? 3u : 0u)) throw Error("a step was not replayed");
            const double decode = seconds_of(stream, kSteps, [&] { decoder.decode(batch.step); });
            const auto sampled = [&](float top_p) {
                for (ops::Sampling& how : batch.how) how.top_p = top_p;
                return seconds_of(stream, kSteps, [&] {
                    ops::sample_tokens(stream, decoder.decode(batch.step), batch.how, batch.tokens,
                                       batch.logprobs);
                });
            };
            rows.push_back({{"shapes", name},
                            {"batch", count},
                            {"graphs", graphs},
                            {"decode_seconds", decode},
                            {"sampled_seconds", sampled(1.0f)},
                            {"top_p_seconds", sampled(0.9f)},
                            {"weights_read_seconds", bytes / rate}});
        }
    }
    return rows;
}

json run(const GpuBench& on) {
    Stream stream = Stream::make_compute(on.gpu);
    const double rate = copy_rate(stream, on.small);
    json result = {
        {"gpu", on.info.name}, {"capability", on.info.capability}, {"copy_bytes_per_s", rate}, {"rows", {}}};
    fmt::print("{}\n{:14} {:>6} {:>7} {:>11} {:>11} {:>11} {:>14}\n", on.info.name, "shapes", "batch",
               "graphs", "decode ms", "+ sample", "+ top-p", "weights once");
    const std::vector<std::string> models = {"SmolLM2-135M", "Qwen3-4B"};
    for (const std::string& name : on.small ? std::vector<std::string>{"tiny"} : models) {
        for (json& row : measure(name, stream, rate)) {
            const auto ms = [&](const char* key) { return row[key].get<double>() * 1e3; };
            fmt::print("{:14} {:>6} {:>7} {:11.3f} {:11.3f} {:11.3f} {:14.3f}\n", name, row["batch"].dump(),
                       row["graphs"].get<bool>() ? "yes" : "no", ms("decode_seconds"), ms("sampled_seconds"),
                       ms("top_p_seconds"), ms("weights_read_seconds"));
            result["rows"].push_back(std::move(row));
        }
    }
    return result;
}

}  // namespace
}  // namespace tandem::engine

int main(int count, char** arguments) {
    return tandem::run_gpu_bench("decode_gpu_bench", count, arguments, tandem::engine::run);
}
