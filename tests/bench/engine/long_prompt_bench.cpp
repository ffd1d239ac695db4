// A long prompt and those beside it. First in this process, in turns: a lone prompt prefilled whole and in
// pieces, as the scheduler cuts them; the token and its log-prob are compared. Then over HTTP: how long small requests
// (one token in, one out) and pauses take beside long prompts.
//   long_prompt_bench [--tokens N] [--prompts N] [--requests N] [--rounds N] [--threads N] [--json]
// The tiny model is that of the report this came from: two layers, hidden 32, nearly all attention. The other
// one has the shapes of SmolLM2-135M with fewer layers, nearly all products.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/http/client.h"
#include "common/model/parameters.h"
#include "common/model/safetensors.h"
#include "common/ops/matmul.h"
#include "common/ops/sampling.h"
#include "engine_adapter/embedded/scheduler.h"
#include "tests/bench/engine/smollm2.h"
#include "tests/multiproc/engine/program.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem::engine {
namespace {

struct Options {
    std::int64_t tokens = 40'000;
    int prompts = 1;
    int requests = 50;
    int rounds = 5;
    int threads = 1;
    bool json = false;
};

model::ModelConfig tiny() {
    model::ModelConfig config;
    config.vocab_size = 259;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 8;
    config.max_position_embeddings = 65536;
    config.qk_norm = false;
    config.qkv_bias = true;
    config.tie_word_embeddings = false;
    return config;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

// The smallest that at least 99 of 100 do not exceed.
double percentile_99(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[(values.size() * 99 + 99) / 100 - 1];
}

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// With one thread its CPU time counts, so that other programs of a shared machine do not.
double work_seconds(int threads) {
    if (threads > 1) return wall_seconds();
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A model with random weights, and what serves it.
struct Serving {
    Serving(const model::ModelConfig& config_in, DType dtype, std::int64_t tokens)
        : config(config_in),
          weights(config, dtype, stream),
          cache(config, dtype, tokens + 64, 16),
          decoder(config, weights, cache, stream) {
        std::mt19937 random(1);
        for (const WeightSlot& slot : weights.slots()) {
            const Tensor tensor = Tensor::borrow(slot.memory, slot.info.shape, slot.info.dtype);
            for (std::int64_t i = 0; i < tensor.numel(); ++i) {
                const float value = (static_cast<float>(random() % 2001) - 1000.0f) * 5e-5f;
                if (dtype == DType::float32) {
                    tensor.data<float>()[i] = value;
                } else {
                    tensor.data<bfloat16>()[i] = bfloat16(value);
                }
            }
        }
    }
    model::ModelConfig config;
    Stream stream = Stream::make_compute({});
    ModelWeights weights;
    KvCache cache;
    Decoder decoder;
};

std::shared_ptr<Job> job_of(std::int64_t tokens, std::int64_t vocab) {
    auto job = std::make_shared<Job>();
    Prompt& prompt = job->request.prompts.emplace_back();
    for (std::int64_t i = 0; i < tokens; ++i)
        prompt.tokens.push_back(static_cast<std::int32_t>(i * 31 % vocab));
    prompt.params.max_new_tokens = 1;
    prompt.params.temperature = 0;
    job->request.return_logprob = true;
    job->seeds = {1};
    return job;
}

// Seconds until the prompt's one token is there; the token and its log-prob go to `out`.
double in_pieces(Serving& serving, std::int64_t tokens, int threads, SampleOutput& out, int& passes) {
    Scheduler scheduler({}, serving.decoder, serving.cache);
    const auto job = job_of(tokens, serving.config.vocab_size);
    scheduler.add(job);
    const double begin = work_seconds(threads);
    for (passes = 0; scheduler.has_work(); ++passes) {
        const double pass = work_seconds(threads);
        scheduler.step(1);
        scheduler.took(work_seconds(threads) - pass);
    }
    out = job->outputs[0];
    return work_seconds(threads) - begin;
}

double whole(Serving& serving, std::int64_t tokens, int threads, SampleOutput& out) {
    PrefillSequence sequence{job_of(tokens, serving.config.vocab_size)->request.prompts[0].tokens, {}};
    for (std::int64_t i = 0; i < serving.cache.pages_for(tokens); ++i)
        sequence.pages.push_back(serving.cache.pool().allocate());
    const double begin = work_seconds(threads);
    const Tensor logits = serving.decoder.prefill({sequence});
    const std::vector<ops::Sampling> greedy = {{.temperature = 0, .logprob = true}};
    out.tokens.resize(1);
    out.logprobs.resize(1);
    ops::sample_tokens(serving.stream, logits, greedy, out.tokens, out.logprobs);
    const double seconds = work_seconds(threads) - begin;
    for (const std::int32_t page : sequence.pages) serving.cache.pool().release(page);
    return seconds;
}

nlohmann::json lone_prompt(const char* name, const model::ModelConfig& config, DType dtype,
                           std::int64_t tokens, const Options& options) {
    ops::set_compute_threads(options.threads);
    Serving serving(config, dtype, tokens);
    std::vector<double> of_whole, of_pieces, ratios;
    int passes = 0;
    for (int round = 0; round < options.rounds; ++round) {
        SampleOutput expected, got;
        of_whole.push_back(whole(serving, tokens, options.threads, expected));
        of_pieces.push_back(in_pieces(serving, tokens, options.threads, got, passes));
        ratios.push_back(of_pieces.back() / of_whole.back());
        enforce(got.tokens == expected.tokens && got.logprobs == expected.logprobs, "pieces gave other bits");
    }
    std::fprintf(stderr, "%-20s %-9s %6lld tokens  whole %8.3f s  in %4d passes %8.3f s  ratio %.3f\n", name,
                 std::string(dtype_name(dtype)).c_str(), static_cast<long long>(tokens), median(of_whole),
                 passes, median(of_pieces), median(ratios));
    return {{"model", name},           {"dtype", dtype_name(dtype)}, {"tokens", tokens},
            {"whole_s", of_whole},     {"pieces_s", of_pieces},      {"passes", passes},
            {"ratio", median(ratios)}, {"threads", options.threads}};
}

nlohmann::json question(std::int64_t tokens, std::int64_t shift) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < tokens; ++i) ids.push_back((i + shift) % 251);
    return {{"input_ids", ids}, {"sampling_params", {{"max_new_tokens", 1}}}};
}

class Asking {
  public:
    explicit Asking(const std::string& url) : client_(url) {}
    double ms(const std::string& path, const nlohmann::json& body) {
        const std::string text = body.dump();
        const double begin = wall_seconds();
        const http::Response answer = client_.request("POST", path, text, Deadline::after_ms(600'000));
        const double end = wall_seconds();
        enforce(answer.status == 200, "{}: {} {}", path, answer.status, answer.body);
        return (end - begin) * 1e3;
    }

  private:
    http::Client client_;
};

// Long prompts that never end: who is through asks again.
class LongPrompts {
  public:
    LongPrompts(const std::string& url, const Options& options) {
        for (int i = 0; i < options.prompts; ++i) {
            threads_.emplace_back([this, url, body = question(options.tokens, i)] {
                Asking asking(url);
                while (!stop_) asking.ms("/generate", body);
            });
        }
    }
    ~LongPrompts() {
        stop_ = true;
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    std::atomic<bool> stop_{false};
    std::vector<std::thread> threads_;
};

nlohmann::json beside(const Options& options) {
    const model::TemporaryDirectory directory;
    const model::ModelConfig config = tiny();
    std::ofstream(directory.file("config.json")) << model::to_json(config);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& spec : model::parameter_specs(config))
        tensors.emplace_back(spec.name, Tensor::empty(spec.shape, DType::float32, "bench"));
    std::mt19937 random(1);
    for (const auto& [name, tensor] : tensors) {
        for (float& value : tensor.values<float>())
            value = (static_cast<float>(random() % 2001) - 1000.0f) * 5e-4f;
    }
    model::write_safetensors(directory.file("model.safetensors"), tensors);
    const std::int64_t room = (options.prompts + 1) * (options.tokens + 1000) * 2;
    Program engine({"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--kv-tokens",
                    std::to_string(room), "--threads", std::to_string(options.threads)});
    const std::string url = engine.url();
    enforce(!url.empty(), "the engine does not start: {}", engine.output());
    Asking asking(url);
    std::vector<double> alone, busy, pauses;
    for (int i = 0; i < options.requests; ++i) alone.push_back(asking.ms("/generate", question(1, i)));
    const LongPrompts long_prompts(url, options);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; i < options.requests; ++i) {
        busy.push_back(asking.ms("/generate", question(1, i)));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    for (int i = 0; i < options.requests; ++i) {
        pauses.push_back(asking.ms("/pause_generation", {{"mode", i % 2 == 0 ? "in_place" : "retract"}}));
        asking.ms("/continue_generation", nlohmann::json::object());
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    asking.ms("/abort_request", {{"abort_all", true}});
    const auto print = [&](const char* what, const std::vector<double>& ms) {
        std::fprintf(stderr, "%-50s p50 %7.1f ms   p99 %7.1f ms   of %zu\n", what, median(ms),
                     percentile_99(ms), ms.size());
    };
    print("a small request, alone", alone);
    print(fmt::format("a small request beside {} x {} tokens", options.prompts, options.tokens).c_str(),
          busy);
    print("a pause beside them", pauses);
    return {{"alone_ms", alone}, {"beside_ms", busy}, {"pause_ms", pauses}};
}

int run(const Options& options) {
    std::fprintf(stderr, "%d threads of %u cores; medians of %d\n", options.threads,
                 std::thread::hardware_concurrency(), options.rounds);
    nlohmann::json result;
    if (options.rounds > 0) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            result["lone"].push_back(lone_prompt("tiny", tiny(), dtype, options.tokens, options));
            result["lone"].push_back(lone_prompt("4 layers of SmolLM2", smollm2_135m(4), dtype,
                                                 std::min<std::int64_t>(options.tokens, 4000), options));
        }
    }
    if (options.requests > 0) result["beside"] = beside(options);
    if (options.json) std::printf("%s\n", result.dump(2).c_str());
    return 0;
}

}  // namespace
}  // namespace tandem::engine

int main(int argc, char** argv) {
    tandem::engine::Options options;
    CLI::App app("Small requests and pauses beside long prompts, and what pieces cost a lone one");
    app.add_option("--tokens", options.tokens, "Of a long prompt")->check(CLI::Range(1000, 65000));
    app.add_option("--prompts", options.prompts, "Long ones at once")->check(CLI::Range(1, 100));
    app.add_option("--requests", options.requests, "Small ones, and pauses; 0: none")
        ->check(CLI::Range(0, 10000));
    app.add_option("--rounds", options.rounds, "Of a lone prompt; 0: none")->check(CLI::Range(0, 100));
    app.add_option("--threads", options.threads, "Of the engine")->check(CLI::Range(1, 1024));
    app.add_flag("--json", options.json, "For machines");
    CLI11_PARSE(app, argc, argv);
    try {
        return tandem::engine::run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "long_prompt_bench: %s\n", error.what());
        return 1;
    }
}
