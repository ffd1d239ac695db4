// The configuration of a run: the quickstart's file is good, and every bad input is refused with its place
// and a reason.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "common/error.h"
#include "common/model/parameters.h"
#include "common/model/safetensors.h"
#include "trainer/config/check.h"
#include "trainer/config/pipeline.h"
#include "trainer/data/sum4.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

struct Folder {
    Folder() : path(fs::temp_directory_path() / ("tandem_config_test." + std::to_string(getpid()))) {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    fs::path path;
};

// What `check` says about a configuration, or "good".
std::string outcome(const std::string& toml, int environment_world_size = 0) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    try {
        schema.read_text(toml, "q.toml");
        check(config, schema, environment_world_size);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "good";
}

TEST(RunConfig, TheDefaultsAndTheQuickstartAreGood) {
    EXPECT_EQ(outcome(""), "good");
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_file(TANDEM_SOURCE_DIR "/examples/quickstart/quickstart.toml");
    check(config, schema, 4);
    EXPECT_EQ(config.world_size(), 4);
    EXPECT_EQ(config.run.name, "quickstart");
}

TEST(RunConfig, EveryKeyIsExplained) {
    RunConfig config;
    const config::Schema schema = schema_of(config);
    for (const auto& key : schema.keys()) {
        EXPECT_GT(key.help.size(), 10u) << key.name;
        EXPECT_TRUE(key.help.ends_with(".")) << key.name;
    }
}

TEST(RunConfig, RefusesWithPlaceAndReason) {
    const std::vector<std::pair<std::string, std::string>> table = {
        {"[mesh]\ndpp = 2", "q.toml:2: unknown key 'mesh.dpp'; did you mean 'mesh.dp'?"},
        {"[run]\ndevice = 'tpu'", "q.toml:2: run.device: expects one of \"cpu\", \"cuda\", got \"tpu\""},
        {"[run]\nname = '../x'", "q.toml:2: run.name: '../x' is not a folder name"},
        {"[run]\nname = ''", "q.toml:2: run.name: '' is not a folder name"},
        {"[run]\nname = '.hidden'", "q.toml:2: run.name: '.hidden' is not a folder name"},
        {"[run]\nname = 'x.partial'", "q.toml:2: run.name: 'x.partial': NAME.partial is the folder of a run"},
        {"[run]\noutput = '/dev/null'", "q.toml:2: run.output: '/dev/null' is not a folder"},
        {"[run]\noutput = '/'\nname = 'usr'", "q.toml:3: run.name: '/usr' exists and is not a run"},
        {"[mesh]\ndp = 64\ncp = 64", "q.toml:2: mesh.dp: dp 64 x cp 64 is more than 1024 ranks"},
        {"[mesh]\ndp = 4\ndp_replicate = 3", "q.toml:3: mesh.dp_replicate: 3 does not divide dp 4"},
        {"[mesh]\ntp = 3",
         "q.toml:2: mesh.tp: tensor parallelism 3 does not fit 4 query heads and 2 key and value heads; 1, "
         "2, 4 do"},
        {"[mesh]\ndp = 2\npp = 9\n[model]\nlayers = 6", "q.toml:3: mesh.pp: 9 stages for 6 layers"},
        {"[pipeline]\nschedule = '2F2B'", "q.toml:2: pipeline.schedule: there is no schedule 2F2B; known: "},
        {"[mesh]\nshard_axes = 'dp_replicate'", "q.toml:2: mesh.shard_axes: expects one of"},
        {"[mesh]\ndp = 4\n[train]\nreshard_ranks = 3",
         "q.toml:4: train.reshard_ranks: 3 is not a factor of the 4 ranks of shard_axes dp_cp"},
        {"[mesh]\ndp = 4\ndp_replicate = 2\nshard_axes = 'dp_shard'\n[train]\nreshard_ranks = 4",
         "q.toml:6: train.reshard_ranks: 4 is not a factor of the 2 ranks of shard_axes dp_shard"},
        {"[train]\nreshard_after_forward = false\nreshard_ranks = 1",
         "q.toml:3: train.reshard_ranks: has no meaning while reshard_after_forward is false"},
        {"[model]\nheads = 5", "q.toml:2: model.heads: 5 heads do not divide among 2 kv_heads"},
        {"[model]\nhead_dim = 15", "q.toml:2: model.head_dim: 15 is odd"},
        {"[model]\nvocab_size = 12",
         "q.toml:2: model.vocab_size: a vocabulary of 12 is too small for task sum4"},
        {"[model]\ncontext = 10", "q.toml:2: model.context: the context is 10 tokens, but a prompt of 8"},
        {"[grpo]\nmax_new_tokens = 25",
         "default: model.context: the context is 32 tokens, but a prompt of 8 with max_new_tokens 25"},
        {"[train]\nmax_tokens_per_rank = 5",
         "q.toml:2: train.max_tokens_per_rank: 5 x cp 1 does not hold one sequence"},
        {"[grpo]\nupdates = 3", "q.toml:2: grpo.updates: 3 does not divide the 512 samples"},
        {"[train]\nmicro_batch = 500",
         "q.toml:2: train.micro_batch: 500 samples of up to 11 tokens do not fit into max_tokens_per_rank "
         "4096"},
        {"[mesh]\ndp = 3\n[grpo]\nprompts = 1\nsamples = 2",
         "default: grpo.updates: leaves 1 samples an update for dp 3"},
        {"[mesh]\ndp = 3\n[sft]\nbatch = 2", "q.toml:4: sft.batch: 2 is fewer than dp 3"},
        {"[data]\nheld_out = 10000",
         "q.toml:2: data.held_out: 10000 leaves none of the task's 10000 prompts"},
        {"[data]\ntask = 'sum5'", "q.toml:2: data.task: expects one of \"auto\", \"sum4\", \"text\""},
        {"[engine]\nurl = 'localhost:30000'",
         "q.toml:2: engine.url: URL \"localhost:30000\" must be http://HOST"},
        {"[engine]\nurl = 'vllm://'", "q.toml:2: engine.url: URL \"vllm://\" names no host"},
        {"[engine]\nurl = 'sglang://'", "q.toml:2: engine.url: URL \"sglang://\" names no host"},
        {"[engine]\nurl = 'http://user:word@h'", "q.toml:2: engine.url: a URL names a user before '@'"},
        {"[sync]\ndeadline_s = 60", "q.toml:2: sync.deadline_s: 60 is not below run.deadline_s, 60"},
        {"[run]\ndeadline_s = 40", "default: engine.deadline_s: 45 is not below run.deadline_s, 40"},
        {"[model]\npath = '/nowhere'", "/nowhere"},
    };
    for (const auto& [toml, message] : table)
        EXPECT_THAT(outcome(toml), testing::StartsWith(message)) << toml;
}

// What is reserved for a rank is its part of what tp cuts: of 99,712 parameters 27,264, a head of keys and values on two
// ranks each and the norms on all. A limit of files' sizes lets the reserve fail, and so tell.
TEST(RunConfig, OffloadedStateIsARanksPart) {
    const Folder folder;
    const auto reserved = [&](const std::string& mesh) {
        rlimit limit{};
        ::getrlimit(RLIMIT_FSIZE, &limit);
        rlimit small = limit;
        small.rlim_cur = 16 << 10;
        ::setrlimit(RLIMIT_FSIZE, &small);
        const std::string said = outcome("[memory]\noffload = 'all'\noffload_dir = '" + folder.path.string() +
                                         "'\n[mesh]\n" + mesh);
        ::setrlimit(RLIMIT_FSIZE, &limit);
        return said;
    };
    EXPECT_THAT(reserved("dp = 4"), testing::HasSubstr(" reserve 99712 bytes "));
    EXPECT_THAT(reserved("tp = 2"), testing::HasSubstr(" reserve 200192 bytes "));
    EXPECT_THAT(reserved("tp = 4"), testing::HasSubstr(" reserve 109056 bytes "));
    EXPECT_THAT(reserved("dp = 2\ntp = 4"), testing::HasSubstr(" reserve 54528 bytes "));
}

TEST(RunConfig, UnevenStagesAreToldWithWhatWouldHelp) {
    model::ModelConfig model;
    model.hidden_size = 64;
    model.intermediate_size = 128;
    model.num_hidden_layers = 12;
    model.num_attention_heads = model.num_key_value_heads = 4;
    model.head_dim = 16;  // a layer: 4 x 64 x 64 + 3 x 64 x 128 = 40,960
    model.vocab_size = 6 * 640;
    for (const bool tied : {false, true}) {
        model.tie_word_embeddings = tied;
        RunConfig config;
        EXPECT_EQ(uneven_stages(config, model), "") << "there are none";
        config.mesh.pp = 2;
        EXPECT_EQ(uneven_stages(config, model),
                  "the stages are uneven: the ranks have 33%, 67% of the work; "
                  "pipeline.last_stage_less_layers=6 would make it 50%, 50%");
        config.pipeline.last_stage_less_layers = 6;
        EXPECT_EQ(uneven_stages(config, model), "");
        config.pipeline.last_stage_less_layers = 1;
        config.pipeline.split = {"model.layers.3"};
        EXPECT_EQ(uneven_stages(config, model), "") << "as it was asked for";
        config.pipeline.split.clear();
        config.pipeline.schedule = "ZBVZeroBubble";  // whose first rank has the head
        EXPECT_EQ(uneven_stages(config, model), "") << "61% and 39%";
    }
    model.vocab_size = 64;
    RunConfig config;
    config.mesh.pp = 2;
    EXPECT_EQ(uneven_stages(config, model), "");
}

TEST(RunConfig, TheMeshMustAgreeWithTheLauncher) {
    EXPECT_EQ(outcome("[mesh]\ndp = 2\ncp = 2", 4), "good");
    EXPECT_EQ(outcome("[mesh]\ndp = 2\ncp = 2", 8),
              "q.toml:2: mesh.dp: dp 2 x cp 2 = 4 ranks, but WORLD_SIZE is 8");
}

TEST(RunConfig, AnEarlierRunMayBeReplacedAndNothingElse) {
    Folder folder;
    fs::create_directories(folder.path / "run");
    const std::string toml = "[run]\noutput = '" + folder.path.string() + "'";
    EXPECT_THAT(outcome(toml), testing::HasSubstr("exists and is not a run"));
    std::ofstream(folder.path / "run" / "config.toml") << "";
    EXPECT_EQ(outcome(toml), "good");
}

TEST(RunConfig, AModelDirectoryMustBeWhole) {
    Folder folder;
    RunConfig config;
    const config::Schema schema = schema_of(config);
    const auto model = model_config(config, schema, Sum4(0, 0));
    std::vector<std::pair<std::string, Tensor>> weights;
    for (const auto& spec : model::parameter_specs(model)) {
        weights.emplace_back(spec.name, Tensor::zeros(spec.shape, DType::float32, "test"));
    }
    const std::string toml = "[model]\npath = '" + folder.path.string() + "'";
    EXPECT_THAT(outcome(toml), testing::HasSubstr("config.json"));
    std::ofstream(folder.path / "config.json") << model::to_json(model);
    EXPECT_THAT(outcome(toml), testing::HasSubstr("safetensors"));

    const std::string file = (folder.path / "model.safetensors").string();
    model::write_safetensors(file, weights);
    EXPECT_EQ(outcome(toml), "good");

    const auto missing = std::vector(weights.begin(), weights.end() - 1);
    model::write_safetensors(file, missing);
    EXPECT_THAT(outcome(toml), testing::HasSubstr("model.norm.weight"));

    auto wrong = weights;
    wrong[0].second = Tensor::zeros({15, 64}, DType::float32, "test");
    model::write_safetensors(file, wrong);
    EXPECT_THAT(outcome(toml), testing::HasSubstr("has shape [15, 64], config.json implies [16, 64]"));

    model::write_safetensors(file, weights);
    fs::resize_file(file, fs::file_size(file) - 100);
    EXPECT_THAT(outcome(toml), testing::HasSubstr("model.safetensors"));
    fs::resize_file(file, 4);
    EXPECT_THAT(outcome(toml), testing::HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace tandem::trainer
