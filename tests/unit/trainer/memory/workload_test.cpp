// The largest passes of a configured run. Those whose rows the ranks of tp do not share evenly take a padded copy, so none
// that is padded may be left out for a larger one that is not.
#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/config/policy_options.h"
#include "trainer/data/make_task.h"
#include "trainer/memory/report.h"

namespace tandem::trainer {
namespace {

// The first step behind the warm start.
memory::Work::Step step_of(const std::string& toml) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_text(toml, "w.toml");
    const auto task = make_task(config, schema);
    return memory::workload_of(config, *task, policy_options(config), model_config(config, schema, *task))
        .work.steps.at(1);
}

// Of the pack that is walked first.
std::int64_t rows_of(const memory::Batch& batch) {
    std::int64_t rows = 0;
    for (const int sample : batch.packs.at(0).samples)
        rows += std::ssize((*batch.samples)[static_cast<std::size_t>(sample)].tokens);
    return rows;
}

template <typename Works>
std::vector<std::int64_t> rows_of(const std::vector<Works>& works) {
    std::vector<std::int64_t> rows;
    for (const Works& work : works) rows.push_back(rows_of(work.batch));
    return rows;
}

bool pads(const std::vector<std::int64_t>& passes, std::int64_t ranks) {
    return std::any_of(passes.begin(), passes.end(), [&](std::int64_t rows) { return rows % ranks != 0; });
}

TEST(Workload, PassesThatArePaddedStandBesideLargerOnes) {
    const std::string batches =
        "[sft]\nsteps = 0\n[grpo]\nprompts = 8\nsamples = 4\nupdates = 1\nepochs = 2\n";
    const auto even = rows_of(step_of(batches).scores);
    ASSERT_EQ(even, std::vector<std::int64_t>{8 * 4 * 11});
    for (const int tp : {2, 4}) {
        const auto cut = step_of(batches + "[mesh]\ntp = " + std::to_string(tp));
        const auto scores = rows_of(cut.scores);
        ASSERT_EQ(scores.size(), 2u);
        EXPECT_TRUE(pads(scores, tp));
        EXPECT_TRUE(pads(rows_of(cut.updates), tp));
        EXPECT_EQ(std::max(scores[0], scores[1]), even[0]);
    }
    const auto whole = step_of(batches + "[mesh]\ntp = 2\n[tensor_parallel]\nsequence_parallel = false");
    EXPECT_EQ(whole.scores.size(), 1u);
}

}  // namespace
}  // namespace tandem::trainer
