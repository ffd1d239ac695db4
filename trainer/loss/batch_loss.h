// The loss of one update over the global batch, token by token. Everything that a token's share depends on
// beside its own scores (how many targets the whole batch has, how many its sequence has) is known before the
// first forward pass, from the samples alone; so the sum over tokens is the same however they are packed, cut
// into micro-batches and spread over ranks. Nothing here knows about ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/loss/loss_options.h"
#include "trainer/loss/loss_sums.h"

namespace tandem::trainer {

// With T target tokens in the batch's n samples, m of them in the token's own, its loss is divided by
//   token_mean     T                        DAPO (Yu et al. 2025), eq. 8
//   sequence_mean  n m                      GRPO (Shao et al. 2024), eq. 3
//   constant       n constant_length        Dr. GRPO (Liu et al. 2025), section 3.1
class BatchLoss {
  public:
    // `samples` are those of the whole update, of all ranks; they must outlive this. Throws InvalidArgument naming the
    // sample that lacks what the options need.
    BatchLoss(std::span<const Sample> samples, const LossOptions& options);

    const LossOptions& options() const { return options_; }
    std::int64_t target_tokens() const { return target_tokens_; }
    // Gradients need the log-ratio of whole sequences: set_sequence() before add().
    bool needs_sequences() const;
    // Sum over the sample's targets of logprob - old_logprob.
    void set_sequence(int sample, double log_ratio_sum);

    struct Token {
        int sample = 0;
        std::int64_t index = 0;  // in the sample
        float logprob = 0;
        float entropy = 0;
        float value = 0;
    };
    struct Gradient {
        float dlogprob = 0;
        float dentropy = 0;
        float dvalue = 0;
    };
    //   loss = w pg - entropy_coef entropy + kl_coef kl + value_coef value_loss
    // with pg of policy_loss.h over the token's log-ratio, or over its sequence's mean (GSPO, Zheng et al.
    // 2025, eq. 7: exp of the mean of logprob - old_logprob), w of importance.h, kl of kl.h, each token's
    // divided as above. w is 0 where OPSM leaves a token out: advantage < 0 and the sequence's mean of
    // old_logprob - logprob above opsm_delta.
    Gradient add(const Token& token, LossSums& sums) const;

    // Loss and means over the batch from sums over all its tokens.
    double mean_loss(const LossSums& sums) const { return sums[LossSums::loss] / divisor_; }

  private:
    struct Sequence {
        double share = 1;    // of the divisor: its losses are multiplied by it
        float gradient = 0;  // what its tokens' gradients are multiplied by
        double targets = 0;
        float log_ratio = 0;   // mean; set_sequence()
        float dlogprob = 0;    // of every token of it, under a sequence's ratio
        bool drifted = false;  // OPSM
    };

    void check(int index) const;
    float importance(const Sample& sample, const Sequence& sequence, std::size_t at, float old_logprob,
                     LossSums* sums) const;
    void add_policy(const Token& token, const Sample& sample, const Sequence& sequence, LossSums& sums,
                    double& loss, float& dlogprob) const;

    std::span<const Sample> samples_;
    LossOptions options_;
    std::vector<Sequence> sequences_;
    std::int64_t target_tokens_ = 0;
    double divisor_ = 1;
};

// Positions of a sample that are targets, ascending; position 0 never is.
std::vector<std::size_t> target_positions(const Sample& sample);

}  // namespace tandem::trainer
