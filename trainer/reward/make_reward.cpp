#include "common/error.h"
#include "trainer/reward/http_reward.h"
#include "trainer/reward/rules.h"

namespace tandem::trainer {

std::unique_ptr<Reward> make_reward(const RewardOptions& o) {
    if (o.rule == "exact") return std::make_unique<ExactReward>(o.ignore_case);
    if (o.rule == "numeric") return std::make_unique<NumericReward>(o.tolerance);
    if (o.rule == "regex") return std::make_unique<PatternReward>(o.pattern, o.ignore_case);
    enforce(o.rule.starts_with("http://"), "'{}' is not exact, numeric, regex or http://host:port/path",
            o.rule);
    return std::make_unique<HttpReward>(o);
}

}  // namespace tandem::trainer
