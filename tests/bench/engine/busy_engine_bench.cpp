// A push into an engine that others keep busy: a model of about 1 GB, 500 clients that ask for the checksums of all
// weights and 64 that send texts to tokenise, beside the pushes of a trainer of two ranks with the default deadlines.
// The same pushes are measured in an engine at rest first. Exit code 1 when a push missed a deadline.
//   busy_engine_bench [--layers N] [--pushes N] [--checkers N] [--texts N] [--json]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/http/client.h"
#include "common/model/parameters.h"
#include "common/stopwatch.h"
#include "engine_adapter/connect.h"
#include "sync/session/session.h"
#include "tests/multiproc/engine/program.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/sync/session/test_source.h"

namespace tandem {
namespace {

constexpr int kRanks = 2;

struct Options {
    int layers = 24;
    int pushes = 5;
    int checkers = 500;
    int texts = 64;
    bool json = false;
};

model::ModelConfig one_gigabyte(int layers) {
    model::ModelConfig config;
    config.vocab_size = 32000;
    config.hidden_size = 1280;
    config.intermediate_size = 3840;
    config.num_hidden_layers = layers;
    config.num_attention_heads = 20;
    config.num_key_value_heads = 4;
    config.head_dim = 64;
    config.max_position_embeddings = 8192;
    return config;
}

// Clients that ask the same question again and again, each over a connection of its own.
class Crowd {
  public:
    Crowd(const std::string& url, int count, const std::string& method, const std::string& target,
          const std::string& body) {
        for (int i = 0; i < count; ++i) {
            threads_.emplace_back([=, this] {
                http::Client client(url);
                while (!stop_) {
                    try {
                        const int status =
                            client.request(method, target, body, Deadline::after_ms(60'000)).status;
                        ++(status < 500 ? answered_ : turned_away_);
                    } catch (const Error&) {
                        ++turned_away_;
                    }
                }
            });
        }
    }
    ~Crowd() { stop(); }
    void stop() {
        stop_ = true;
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }
    int answered() const { return answered_; }
    int turned_away() const { return turned_away_; }

  private:
    std::atomic<bool> stop_{false};
    std::atomic<int> answered_{0};
    std::atomic<int> turned_away_{0};
    std::vector<std::thread> threads_;
};

struct Pushes {
    std::vector<double> ms;  // from pause to resume, each
    std::vector<std::string> failures;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

int run(const Options& options) {
    const model::TemporaryDirectory directory;
    const model::ModelConfig config = one_gigabyte(options.layers);
    std::ofstream(directory.file("config.json")) << model::to_json(config);
    std::filesystem::copy(TANDEM_SOURCE_DIR "/tests/golden/data/tokenizer/smollm/tokenizer.json",
                          directory.file("tokenizer.json"));
    engine::Program engine({"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--load-format",
                            "dummy", "--dtype", "bfloat16", "--no-packed-weights", "--kv-tokens", "16384"});
    const std::string url = engine.url();
    enforce(!url.empty(), "the engine does not start: {}", engine.output());

    std::vector<engine::TensorInfo> tensors;
    for (const model::ParameterSpec& spec : model::parameter_specs(config))
        tensors.push_back({spec.name, spec.shape, DType::bfloat16, {}});
    std::size_t bytes = 0;
    for (const engine::TensorInfo& tensor : tensors) bytes += engine::tensor_bytes(tensor);

    Pushes at_rest, busy;
    int sums = 0, sums_away = 0, texts = 0, texts_away = 0;
    comm::run_threads(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
        const sync::TestSource source(
            tensors, DeviceMesh::create(world, {kRanks}, {"dp"}),
            std::vector<Placements>(tensors.size(), {Shard(0)}), DType::bfloat16,
            [](std::size_t t, std::size_t i, int) { return static_cast<float>((t + i) % 251) / 256.0f; });
        std::unique_ptr<engine::Engine> port;
        if (world->rank() == 0) port = engine::connect(url, Deadline::after_ms(10'000));
        sync::Session session(world, source, std::move(port));
        std::int64_t version = 0;
        const auto push = [&](Pushes& into) {
            for (int i = 0; i < options.pushes; ++i) {
                std::string failure;
                double ms = 0;
                try {
                    ms = session.push(++version).total_ms;
                } catch (const sync::SyncError& error) {
                    failure = error.what();
                }
                if (world->rank() != 0) continue;
                failure.empty() ? into.ms.push_back(ms) : into.failures.push_back(failure);
            }
        };
        push(at_rest);
        std::vector<std::unique_ptr<Crowd>> crowds;
        if (world->rank() == 0) {
            std::string text;
            while (text.size() < 200'000) text += "weights go round and round, ";
            crowds.push_back(std::make_unique<Crowd>(url, options.checkers, "GET", "/weights_checker", ""));
            const nlohmann::json question = {{"text", text}, {"sampling_params", {{"max_new_tokens", 1}}}};
            crowds.push_back(
                std::make_unique<Crowd>(url, options.texts, "POST", "/generate", question.dump()));
            std::this_thread::sleep_for(std::chrono::seconds(2));
        }
        world->barrier();
        push(busy);
        if (world->rank() != 0) return;
        for (const auto& crowd : crowds) crowd->stop();
        sums = crowds[0]->answered(), sums_away = crowds[0]->turned_away();
        texts = crowds[1]->answered(), texts_away = crowds[1]->turned_away();
    });

    const auto worst = [](const Pushes& pushes) {
        return pushes.ms.empty() ? 0 : *std::max_element(pushes.ms.begin(), pushes.ms.end());
    };
    if (options.json) {
        std::printf("%s\n", nlohmann::json({{"bytes", bytes},
                                            {"at_rest_ms", at_rest.ms},
                                            {"busy_ms", busy.ms},
                                            {"failures", busy.failures},
                                            {"checksum_answers", sums},
                                            {"checksum_refusals", sums_away},
                                            {"text_answers", texts},
                                            {"text_refusals", texts_away}})
                                .dump()
                                .c_str());
    } else {
        std::printf("%.2f GB, %d pushes each; ms from pause to resume\n", static_cast<double>(bytes) * 1e-9,
                    options.pushes);
        std::printf("  %-40s median %8.1f   worst %8.1f   failed %zu\n", "engine at rest", median(at_rest.ms),
                    worst(at_rest), at_rest.failures.size());
        std::printf("  %-40s median %8.1f   worst %8.1f   failed %zu\n",
                    fmt::format("{} checksums, {} texts at a time", options.checkers, options.texts).c_str(),
                    median(busy.ms), worst(busy), busy.failures.size());
        std::printf("  meanwhile: %d checksums (%d turned away), %d texts (%d turned away)\n", sums,
                    sums_away, texts, texts_away);
        for (const std::string& failure : busy.failures) std::printf("  failed: %s\n", failure.c_str());
    }
    return busy.failures.empty() && at_rest.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
    tandem::Options options;
    CLI::App app("Pushes into an engine that others keep busy");
    app.add_option("--layers", options.layers, "Of the model; 24 make 1 GB")->check(CLI::Range(1, 200));
    app.add_option("--pushes", options.pushes, "At rest, and again while it is busy")
        ->check(CLI::Range(1, 1000));
    app.add_option("--checkers", options.checkers, "Clients of /weights_checker")
        ->check(CLI::Range(0, 10000));
    app.add_option("--texts", options.texts, "Clients that send texts")->check(CLI::Range(0, 10000));
    app.add_flag("--json", options.json, "For machines");
    CLI11_PARSE(app, argc, argv);
    try {
        return tandem::run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "busy_engine_bench: %s\n", error.what());
        return 1;
    }
}
