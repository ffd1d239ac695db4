// The largest passes of a configured run. Those whose rows the ranks of tp do not share evenly take a padded copy, so none
// that is padded may be left out for a larger one that is not.
#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/config/policy_options.h"
#include "trainer/data/make_task.h"
#include "trainer/memory/report.h"

namespace tandem::trainer {
namespace {

memory::Workload workload_of(const std::string& toml) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_text(toml, "w.toml");
    return memory::workload_of(config, *make_task(config, schema), policy_options(config));
}

bool pads(const std::vector<memory::PassShape>& passes, std::int64_t ranks) {
    return std::any_of(passes.begin(), passes.end(),
                       [&](const memory::PassShape& pass) { return pass.rows % ranks != 0; });
}

TEST(Workload, PassesThatArePaddedStandBesideLargerOnes) {
    const std::string batches = "[sft]\nsteps = 0\n[grpo]\nprompts = 8\nsamples = 4\nupdates = 1\n";
    const memory::Workload even = workload_of(batches);
    ASSERT_EQ(even.scores.size(), 1u);
    ASSERT_EQ(even.scores[0].rows, 8 * 4 * 11);
    for (const int tp : {2, 4}) {
        const memory::Workload cut = workload_of(batches + "[mesh]\ntp = " + std::to_string(tp));
        ASSERT_EQ(cut.scores.size(), 2u);
        EXPECT_TRUE(pads(cut.scores, tp));
        EXPECT_TRUE(pads(cut.train, tp));
        EXPECT_EQ(std::max(cut.scores[0].rows, cut.scores[1].rows), even.scores[0].rows);
    }
    const memory::Workload whole =
        workload_of(batches + "[mesh]\ntp = 2\n[tensor_parallel]\nsequence_parallel = false");
    EXPECT_EQ(whole.scores.size(), 1u);
}

}  // namespace
}  // namespace tandem::trainer
