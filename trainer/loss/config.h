// [loss]: its keys, the options that they make together, and the combinations that are refused.
#pragma once

#include "trainer/config/config.h"
#include "trainer/loss/batch_advantages.h"
#include "trainer/loss/loss_options.h"

namespace tandem::trainer {

void add_loss_keys(config::Schema& schema, RunConfig& config);
// Throws ConfigError.
void check_loss(const RunConfig& config, const config::Schema& schema);

LossOptions loss_options(const RunConfig& config);
AdvantageOptions advantage_options(const RunConfig& config);
// Whether the policy's own log-probs (or values) of a batch are needed before its first update. Else the update is the
// only one, and finds them on its way (LossOptions::on_policy).
bool scores_before_update(const RunConfig& config);
bool needs_reference(const RunConfig& config);
bool needs_value_head(const RunConfig& config);

}  // namespace tandem::trainer
