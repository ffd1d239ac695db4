// What `tandem-sync bench` tells in each mode, what it refuses and what it writes.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/ops/batched_copy.h"
#include "common/tensor/dtype.h"
#include "sync/bench/shapes.h"
#include "sync/plan/engine_layout.h"
#include "tests/multiproc/bench_program/bench_program.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

TEST_F(BenchProgram, TellsEveryFieldInEveryMode) {
    for (const char* mode : {"gather", "direct", "alias", "delta"}) {
        for (const auto& [mesh, source] : {std::pair{"2,1", "bfloat16"}, {"2,2", "float32"}}) {
            SCOPED_TRACE(fmt::format("{} {} {}", mode, mesh, source));
            const json result =
                run(mode, {"--mesh", mesh, "--source-dtype", source, "--bucket-mib", "0.0625"});
            for (const char* field : {"bytes", "median_ms", "p95_ms", "phase_ms", "gbps", "copy_gbps",
                                      "speed_of_light_ms", "speed_of_light_ratio", "staging_peak_bytes",
                                      "staging_cap_bytes", "steady_state_allocations", "bytes_moved",
                                      "verified", "bucket_bytes", "depth", "mesh", "mode", "hardware"}) {
                EXPECT_TRUE(result.contains(field)) << field;
            }
            for (const char* phase :
                 {"prepare", "pause", "gather", "copy", "load", "resume", "finish", "pack"}) {
                ASSERT_TRUE(result["phase_ms"].contains(phase)) << phase;
                EXPECT_GE(result["phase_ms"][phase], 0.0) << phase;
            }
            for (const char* field : {"bytes", "median_ms", "gbps", "copy_gbps", "speed_of_light_ms",
                                      "speed_of_light_ratio", "depth"}) {
                EXPECT_GT(result[field], 0.0) << field;
            }
            EXPECT_GE(result["p95_ms"], result["median_ms"]);
            EXPECT_EQ(result["mode"], mode);
            EXPECT_EQ(fmt::format("{},{}", result["mesh"][0].get<int>(), result["mesh"][1].get<int>()), mesh);
            EXPECT_EQ(result["steady_state_allocations"], 0);
            EXPECT_LE(result["staging_peak_bytes"], result["staging_cap_bytes"]);
            const bool staged = std::string(mode) == "gather" || std::string(mode) == "delta";
            EXPECT_EQ(result["staging_cap_bytes"], staged ? result["depth"].get<int>() * 65536 : 0);
            EXPECT_EQ(result["staging_peak_bytes"] > 0, staged);
        }
    }
}

// Ranks that hold what stages, tensor parallelism and FSDP leave them, also fewer key and value heads than ranks, and stages
// without a layer.
TEST_F(BenchProgram, TakesMeshesByName) {
    const std::pair<const char*, const char*> table[] = {{"dp=2,tp=2", "1"},
                                                         {"tp=4", "2"},
                                                         {"dp=2,dp_replicate=2,tp=2", "4"},
                                                         {"dp=2,tp=2,pp=2", "2"},
                                                         {"pp=4", "1"}};
    for (const auto& [mesh, engine_tp] : table) {
        for (const char* mode : {"gather", "direct", "alias", "delta"}) {
            SCOPED_TRACE(fmt::format("{} {} {}", mesh, engine_tp, mode));
            const json result = run(mode, {"--mesh", mesh, "--engine-tp", engine_tp});
            EXPECT_TRUE(result["mesh"].is_object());
        }
    }
}

// 101 rows over tp 4 are 26, 26, 26, 23, and those over fsdp 2 or 3 do not divide either; of 2 key and value heads each lies
// on two tp ranks; 9 of intermediate width are 3, 3, 3 and none.
TEST_F(BenchProgram, TakesMeshesThatDivideNothing) {
    const std::string shapes = cache_.path() + "/shapes.json";
    std::ofstream(shapes)
        << R"({"model_type": "qwen2", "hidden_size": 10, "intermediate_size": 9, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 101})";
    for (const char* mesh : {"dp=2,tp=4", "dp=3,tp=4", "dp=6,dp_replicate=2,tp=2", "dp=5,tp=1"}) {
        for (const char* mode : {"gather", "direct", "alias", "delta"}) {
            SCOPED_TRACE(fmt::format("{} {}", mesh, mode));
            run(mode, {"--mesh", mesh}, shapes);
        }
    }
}

// On the emulated GPU, with every process opening the others' handles.
TEST_F(BenchProgram, BringsWeightsFromAGpuToAGpu) {
    for (const char* mode : {"gather", "direct", "alias"}) {
        for (const char* mesh : {"1", "2,1"}) {
            SCOPED_TRACE(fmt::format("{} {}", mode, mesh));
            const json result = run(mode, {"--mesh", mesh, "--device", "cuda", "--engine-tp", "2"});
            EXPECT_EQ(result["device"], "cuda:0");
            EXPECT_EQ(result["transport"], "cuda_ipc");
            EXPECT_EQ(result["emulated"], true);
            EXPECT_THAT(result["hardware"].get<std::string>(), testing::StartsWith("emulated GPU 0"));
            EXPECT_EQ(result["steady_state_allocations"], 0);
            EXPECT_GT(result["speed_of_light_ms"], 0.0);
            EXPECT_EQ(result["bytes_moved"] > 0, std::string(mode) != "alias");
        }
    }
}

// Each engine rank on an emulated GPU of its own, in one NCCL group with trainer rank 0.
TEST_F(BenchProgram, BringsWeightsToOtherGpusOverNccl) {
    for (const char* tp : {"1", "2"}) {
        for (const char* mesh : {"1", "2,1"}) {
            SCOPED_TRACE(fmt::format("{} engine ranks, {}", tp, mesh));
            const json result =
                run("gather", {"--mesh", mesh, "--device", "cuda", "--transport", "nccl", "--engine-tp", tp});
            EXPECT_EQ(result["transport"], "nccl");
            EXPECT_EQ(result["device"], "cuda:0");
            EXPECT_EQ(result["steady_state_allocations"], 0);
        }
    }
}

TEST_F(BenchProgram, MovesWhatTheEngineKeepsAndNoMore) {
    for (const int tp : {1, 2, 4}) {
        std::size_t bytes = 0;
        for (const auto& rank :
             sync::engine_layout(sync::model_tensors("tiny"), {tp, 1, true}, DType::bfloat16)) {
            for (const engine::TensorInfo& tensor : rank) bytes += engine::tensor_bytes(tensor);
        }
        for (const char* mode : {"direct", "gather"}) {
            const json result = run(mode, {"--engine-tp", std::to_string(tp)});
            EXPECT_EQ(result["bytes"], bytes) << mode << " " << tp;
            EXPECT_EQ(result["bytes_moved"], bytes) << mode << " " << tp;
        }
    }
    EXPECT_EQ(run("alias", {"--engine-tp", "4"})["bytes_moved"], 0);
}

// 101 rows on two ranks: 64, and 37 with 27 rows of zeros behind them, where a trainer's memory has none.
TEST_F(BenchProgram, PadsAVocabularyThatDoesNotDivide) {
    const std::string shapes = cache_.path() + "/shapes.json";
    std::ofstream(shapes)
        << R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 101})";
    const auto push = [&](const std::string& mode) {
        return std::make_unique<Program>(Words{"tandem-sync", "bench", "--shapes", shapes, "--mode", mode,
                                               "--engine-tp", "2", "--json", "--iterations", "1"},
                                         environment());
    };
    for (const char* mode : {"gather", "direct", "delta"}) {
        const auto program = push(mode);
        EXPECT_EQ(program->wait(), 0) << program->err();
        EXPECT_EQ(json::parse(program->out())["verified"], true) << mode;
    }
    const auto alias = push("alias");
    EXPECT_EQ(alias->wait(), 1);
    EXPECT_THAT(alias->err(), HasSubstr("mode alias needs an engine that can read weights in place"));
}

// A line of input is a question.
TEST_F(BenchProgram, AnEngineRankSaysWhatItHolds) {
    std::FILE* pipe = ::popen("echo | " TANDEM_BIN_DIR
                              "/tandem-sync bench-engine --shapes tiny --engine-tp 2 --engine-rank 1",
                              "r");
    ASSERT_NE(pipe, nullptr);
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text.push_back(static_cast<char>(c));
    EXPECT_EQ(::pclose(pipe), 0) << text;
    std::istringstream lines(text);
    std::string address, answer;
    std::getline(lines, address);
    std::getline(lines, answer);
    EXPECT_THAT(address, testing::StartsWith("unix-abstract:"));
    const json held = json::parse(answer);
    EXPECT_EQ(held["version"], 0);
    std::vector<std::byte> zeros(256 * 64 * sizeof(bfloat16));
    EXPECT_EQ(held["tensors"]["model.embed_tokens.weight"],
              ops::to_hex(ops::checksum({zeros.data(), zeros.size()})));
}

TEST_F(BenchProgram, DeltaMovesWhatChanged) {
    const auto part = [&](const char* changed) {
        const json result = run("delta", {"--changed", changed});
        return result["bytes_moved"].get<double>() / result["bytes"].get<double>();
    };
    EXPECT_EQ(part("0"), 0);
    const double one_percent = part("0.01");
    EXPECT_GT(one_percent, 0.01);
    EXPECT_LE(one_percent, 0.04);
    EXPECT_GT(part("1"), 0.9);
}

// By one rank: two would see whether their cores share a cache, which may change from push to push, and buckets with it.
TEST_F(BenchProgram, ChoosesBucketsByWhatItMeasured) {
    Program program(
        {"tandem-sync", "bench", "--shapes", "SmolLM2-135M", "--mesh", "1,1", "--iterations", "4", "--json"},
        environment());
    ASSERT_EQ(program.wait(), 0) << program.err();
    const json result = json::parse(program.out());
    EXPECT_EQ(result["chosen_by"], "cost model");
    EXPECT_GT(result["predicted_ms"], 0.0);
    EXPECT_EQ(result["verified"], true);
    EXPECT_EQ(result["steady_state_allocations"], 0);
    EXPECT_LE(result["staging_peak_bytes"], result["staging_cap_bytes"]);
    EXPECT_TRUE(fs::exists(cache_ / "costs.json"));
}

TEST_F(BenchProgram, WritesPageAndTrace) {
    Folder folder;
    const json result = run("gather", {"--bucket-mib", "0.0625", "--html", folder / "page.html", "--trace",
                                       folder / "trace.json"});
    const std::string page = read_file(folder / "page.html");
    EXPECT_TRUE(page.starts_with("<!doctype html>")) << page.substr(0, 40);
    EXPECT_THAT(page, HasSubstr("tiny"));
    const json trace = json::parse(read_file(folder / "trace.json"));
    std::set<int> processes;
    std::set<std::string> categories;
    for (const json& event : trace["traceEvents"]) {
        processes.insert(event["pid"].get<int>());
        if (event.contains("cat")) categories.insert(event["cat"]);
    }
    EXPECT_EQ(processes, (std::set<int>{0, 1}));
    EXPECT_TRUE(categories.contains("gather") && categories.contains("load")) << json(categories);
    const auto files = std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{});
    EXPECT_EQ(files, 2);
}

// The kernel spaces what goes to an engine rank evenly: no push is faster than the link. Of 32 MiB, beside which what it
// lets pass at once does not count.
TEST_F(BenchProgram, OverALinkOfAGivenRate) {
    Folder folder;
    std::ofstream(folder / "shapes.json")
        << R"({"model_type": "qwen3", "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1536,
               "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
               "tie_word_embeddings": true})";
    for (const char* mode : {"gather", "direct", "delta"}) {
        Program program({"tandem-sync", "bench", "--shapes", folder / "shapes.json", "--mode", mode,
                         "--link-gbps", "0.2", "--iterations", "3", "--json"},
                        environment());
        ASSERT_EQ(program.wait(), 0) << program.err();
        const json result = json::parse(program.out());
        EXPECT_EQ(result["transport"], "tcp");
        EXPECT_EQ(result["link_gbps"], 0.2);
        EXPECT_EQ(result["verified"], true);
        EXPECT_LT(result["gbps"], 0.22) << mode;
    }
}

TEST_F(BenchProgram, RefusesNonsenseByOption) {
    Folder folder;
    const std::vector<std::pair<Words, std::string>> table = {
        {{"--mode", "teleport"}, "--mode: no mode 'teleport'; there are gather, direct, alias, delta"},
        {{"--device", "tpu"}, "--device: "},
        {{"--device", "cuda:7"}, "--device: cuda:7"},
        {{"--transport", "pigeon"},
         "--transport: no transport 'pigeon'; there are auto, shm, cuda_ipc, nccl"},
        {{"--transport", "nccl"}, "--transport: nccl does not reach memory of cpu"},
        {{"--device", "cuda", "--transport", "nccl", "--mode", "direct"}, "--mode: over nccl trainer rank 0"},
        {{"--device", "cuda", "--transport", "nccl", "--engine-tp", "4"},
         "--transport: NCCL refuses two ranks on one GPU: cuda and each of the 4 engine ranks"},
        {{"--transport", "cuda_ipc"}, "--transport: cuda_ipc does not reach memory of cpu"},
        {{"--device", "cuda", "--mode", "delta"}, "--mode: delta compares on the CPU"},
        {{"--device", "cuda", "--engine-dtype", "int8"}, "--engine-dtype: weights are quantised on the CPU"},
        {{"--shapes", "GPT-9"}, "--shapes"},
        {{"--shapes", folder / "none.json"}, "--shapes"},
        {{"--mesh", "2,0"}, "--mesh: one or two positive sizes"},
        {{"--mesh", "2,2,2"}, "--mesh: one or two positive sizes"},
        {{"--mesh", "two"}, "--mesh: 'two' is no size"},
        {{"--mesh", "dp=2,ep=2"}, "--mesh: no axis 'ep'"},
        {{"--mesh", "pp=33"},
         "--mesh: 33 stages for 30 layers, with the embedding as 1 and the head as 1 of them; at most 32 "
         "fit"},
        {{"--mesh", "tp=2"}, "--mesh: tensor parallelism 2 does not fit 9 query heads"},
        {{"--mesh", "dp=2,tp=2", "--shard-all"}, "--shard-all: is of a mesh without names"},
        {{"--engine-tp", "0"}, "--engine-tp: must be from 1 to 64"},
        {{"--engine-tp", "5"}, "--engine-tp: tensor 'model.layers.0.self_attn.q_proj.weight': 9 heads"},
        {{"--changed", "1.5"}, "--changed: must be from 0 to 1"},
        {{"--changed", "nan"}, "--changed: must be from 0 to 1"},
        {{"--bucket-mib", "-1"}, "--bucket-mib: must be from 0"},
        {{"--depth", "-1"}, "--depth: must be 0 or from 1 to 64"},
        {{"--mode", "delta", "--depth", "1"}, "--depth: must be 0 or from 2 to 64"},
        {{"--iterations", "0"}, "--iterations: must be from 1"},
        {{"--iterations", "many"}, "--iterations"},
        {{"--source-dtype", "float12"}, "--source-dtype: unknown dtype 'float12'"},
        {{"--source-dtype", "int64"}, "--source-dtype: must be float32, bfloat16 or float16"},
        {{"--engine-dtype", "float12"}, "--engine-dtype: unknown dtype 'float12'"},
        {{"--link-gbps", "-1"}, "--link-gbps: must be from 0"},
        {{"--link-gbps", "1", "--transport", "shm"}, "--link-gbps: shm is not paced, TCP is"},
        {{"--link-gbps", "1", "--mode", "alias"}, "--mode"},
        {{"--mode", "alias", "--sweep"}, "--sweep: modes gather and delta have buckets"},
        {{"--html", folder / "nowhere/page.html"}, "--html"},
        {{"--trace", folder / "nowhere/trace.json"}, "--trace"},
        {{"--trace", folder.path()}, "--trace"},
        {{"--trace", "/proc/trace.json"}, "--trace: /proc/trace.json cannot be written"},
        {{"--shapes", folder.path()}, "is a folder, not a file"},
        {{"--transport", "tcp", "--data-listen", "127.0.0.1:77777"}, "--data-listen: \"127.0.0.1:77777\""},
        {{"--shapes", "tiny", "--transport", "tcp", "--data-listen", "host.invalid:0"}, "host.invalid"},
        {{"--engine", "127.0.0.1:1"}, "'127.0.0.1:1' names no engine"},
        {{"--frobnicate"}, "--frobnicate"},
    };
    for (const auto& [options, message] : table) {
        Words command{"tandem-sync", "bench"};
        command.insert(command.end(), options.begin(), options.end());
        Program program(command, environment());
        EXPECT_EQ(program.wait(), 2) << message;
        EXPECT_THAT(program.err() + program.out(), HasSubstr(message));
    }
    EXPECT_TRUE(folder.empty());
}

}  // namespace
}  // namespace tandem::test
