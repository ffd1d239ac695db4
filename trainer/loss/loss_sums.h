// Sums over target tokens from which a loss's metrics are made; in the end, of all micro-batches and ranks.
#pragma once

#include <array>
#include <cstddef>

namespace tandem::trainer {

struct LossSums {
    enum Sum : std::size_t {
        loss,  // by the options' aggregation; the others count each token once
        policy_loss,
        entropy,
        kl,  // k3 estimate of KL(old || policy)
        clipped,
        clipped_low,
        clipped_high,
        dual_clipped,
        reference_kl,
        value_loss,
        value_clipped,
        importance,  // weights
        truncated,   // weights that were truncated
        dropped,     // tokens that OPSM left out
        count
    };
    std::array<double, count> values{};
    double ratio_max = 0;  // of policy / old

    double& operator[](Sum sum) { return values[sum]; }
    double operator[](Sum sum) const { return values[sum]; }
};

}  // namespace tandem::trainer
