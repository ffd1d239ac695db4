// The options of a loss, as plain data: each field's formula is where it is computed (policy_loss.h, kl.h,
// importance.h, value_loss.h, batch_loss.h). The initial values are GRPO's.
#pragma once

#include <cstdint>

namespace tandem::trainer {

// Estimators of KL(policy || reference) from one sampled token; see kl.h.
enum class KlForm : std::uint8_t { k1, k2, k3, low_var };

struct LossOptions {
    // token: clipped ratio of each token (PPO, GRPO). sequence: of the whole sequence (GSPO). none:
    // REINFORCE, no ratio. supervised: -logprob, everything else ignored but temperature and aggregation.
    enum class Ratio : std::uint8_t { token, sequence, none, supervised } ratio = Ratio::token;
    // The first update of a batch and its only one: old log-probs are the policy's own, as it is. Samples need none.
    bool on_policy = false;
    float clip_low = 0.2f;
    float clip_high = 0.2f;  // larger than clip_low: "clip-higher"
    float dual_clip = 0;     // above 1: bound of the ratio where the advantage is negative; 0: off

    // Importance weight of what the engine sampled under its own log-probs; see importance.h.
    enum class Truncation : std::uint8_t { off, clamp, band } truncation = Truncation::off;
    float tis_low = 0;
    float tis_high = 2;
    float opsm_delta = 0;  // above 0: bad sequences that drifted further than this are left out

    KlForm kl = KlForm::low_var;
    float kl_coef = 0;  // of the KL to the reference as a term of the loss
    float entropy_coef = 0;
    float value_coef = 0;  // 0: no value head is trained
    float value_clip = 0.2f;

    // The divisor of the sum over tokens; see BatchLoss (batch_loss.h).
    enum class Aggregation : std::uint8_t {
        token_mean,
        sequence_mean,
        constant
    } aggregation = Aggregation::token_mean;
    double constant_length = 1;  // of Aggregation::constant

    float temperature = 1;  // log-probs and entropies are those of softmax(logits / temperature)
};

// -logprob of each target, averaged over all of them.
inline LossOptions supervised_loss() {
    LossOptions options;
    options.ratio = LossOptions::Ratio::supervised;
    return options;
}

}  // namespace tandem::trainer
