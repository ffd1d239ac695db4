// Predictions of models and meshes that no test could run: what is walked of a batch stands for all of it, and neither the
// model's size nor its mesh costs memory.
#include <gtest/gtest.h>

#include "common/device/process_memory.h"
#include "trainer/config/policy_options.h"
#include "trainer/data/make_task.h"
#include "trainer/memory/report.h"
#include "trainer/pipeline/schedule.h"

#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer {
namespace {

memory::Report report_of(const std::string& toml) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_text(toml, "large.toml");
    return memory::report_of(config, schema, *make_task(config, schema), {});
}

constexpr const char* kSeventyBillion = R"([run]
device = "cuda"
[model]
hidden_size = 8192
intermediate_size = 28672
layers = 80
heads = 64
kv_heads = 8
head_dim = 128
vocab_size = 128256
context = 8192
tie_embeddings = false
[train]
compute_dtype = "bf16"
max_tokens_per_rank = 4096
[memory]
activation_checkpointing = "full"
[sft]
steps = 0
[grpo]
prompts = 64
samples = 8
max_new_tokens = 2000
)";

TEST(LargeModel, IsPredictedInLittleMemory) {
    const ProcessMemory before = process_memory();
    const memory::Report alone = report_of(kSeventyBillion);
    // Shards, gradients and two moments of 70 billion parameters, 4 bytes each.
    const auto& peak = alone.largest().prediction.peak();
    EXPECT_GT(peak.by_tag.at("shards"), std::uint64_t{70} * 4'000'000'000);
    EXPECT_EQ(peak.by_tag.at("optimizer"), 2 * peak.by_tag.at("shards"));
    const memory::Report cut = report_of(std::string(kSeventyBillion) + "[mesh]\ndp = 8\ntp = 8\n");
    EXPECT_NEAR(static_cast<double>(cut.largest().prediction.peak().by_tag.at("shards")),
                static_cast<double>(peak.by_tag.at("shards")) / 64, 1e7);
    EXPECT_LT(process_memory().peak_bytes, before.peak_bytes + (std::size_t{200} << 20));
}

TEST(LargeModel, EveryStageIsPredicted) {
    const memory::Report report =
        report_of(std::string(kSeventyBillion) + "[mesh]\ndp = 2\ntp = 8\npp = 4\n");
    ASSERT_EQ(report.stages.size(), 4u);
    std::uint64_t shards = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(report.stages[i].rank, static_cast<int>(i) * 16);
        const auto& phases = report.stages[i].prediction.phases;
        shards += phases.at("forward_backward").by_tag.at("shards");
        EXPECT_LE(report.stages[i].prediction.peak().bytes, report.largest().prediction.peak().bytes);
        // 1F1B: the earlier a stage the more micro-batches it holds; the ends have the vocabulary.
        if (i == 1 || i == 2) {
            EXPECT_GT(report.stages[i - 1].prediction.phases.at("forward_backward").by_tag.at("activations"),
                      phases.at("forward_backward").by_tag.at("activations"));
        }
    }
    EXPECT_NEAR(static_cast<double>(shards), 70.6e9 * 4 / 16, 1e9);
    EXPECT_EQ(report.choices.size(), 12u);
    for (const memory::Report::Choice& choice : report.choices) {
        EXPECT_TRUE(!choice.chosen || choice.peak_bytes == report.largest().prediction.peak().bytes);
    }
}

class Schedules : public ::testing::TestWithParam<std::string> {};

// As many micro-batches as are walked take what forty do, on every rank.
TEST_P(Schedules, FewMicroBatchesStandForMany) {
    model::ModelConfig model = testing::tiny_config();
    model.num_hidden_layers = 8;
    PolicyOptions options;
    options.max_tokens_per_rank = 16;
    options.pipeline.schedule = GetParam();
    const int ranks = 4;
    const pipeline::Plan plan(options.pipeline, ranks, 8);
    const int many = plan.microbatches(40), few = memory::enough_micro_batches(plan, many);
    EXPECT_EQ(few == many, GetParam() == "GPipe" || GetParam() == "LoopedBFS") << few << " of " << many;

    const auto predicted = [&](int rank, int micro_batches) {
        std::vector<int> lengths(static_cast<std::size_t>(many), 16);
        const auto samples = std::make_shared<const std::vector<Sample>>(
            testing::random_samples(lengths, model.vocab_size, 3));
        memory::Batch batch{samples, {}, 0};
        for (int i = 0; i < micro_batches; ++i) batch.packs.push_back({{0}, 16});
        memory::Work work;
        work.steps = {{{}, {{batch, supervised_loss()}}}};
        const DeviceMesh mesh = DeviceMesh::abstract({ranks, 1, 1}, {"pp", "dp", "cp"}, rank);
        return memory::predict(model, options, mesh, work).phases.at("forward_backward");
    };
    for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(predicted(rank, few).by_tag, predicted(rank, many).by_tag) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(All, Schedules, ::testing::ValuesIn(pipeline::schedule_names()));

}  // namespace
}  // namespace tandem::trainer
