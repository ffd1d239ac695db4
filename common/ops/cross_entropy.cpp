// The checks that hold on every device, then the way to the backend.
#include "common/ops/cross_entropy.h"

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {
namespace {

void check_logits(const char* op, const Tensor& logits, std::span<const std::int32_t> targets,
                  float temperature) {
    detail::check_ndim(op, "logits", logits, 2);
    detail::check_dtype(op, "logits", logits, DType::float32);
    require(temperature > 0.0f, "{}: temperature {} must be positive", op, temperature);
    require(static_cast<std::int64_t>(targets.size()) == logits.dim(0), [&] {
        return fmt::format("{}: {} targets for logits {}", op, targets.size(), to_string(logits.shape()));
    });
    for (std::size_t i = 0; i < targets.size(); ++i) {
        require(targets[i] >= kElsewhere && targets[i] < logits.dim(1),
                "{}: target {} in row {} is outside the vocabulary of {}", op, targets[i], i, logits.dim(1));
    }
}

}  // namespace

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies) {
    check_logits("token_logprobs", logits, targets, temperature);
    require(logprobs.size() == targets.size() && lse.size() == targets.size() &&
                (entropies.empty() || entropies.size() == targets.size()),
            "token_logprobs: logprobs {}, lse {}, entropies {} for {} rows", logprobs.size(), lse.size(),
            entropies.size(), targets.size());
    TANDEM_ROUTE(token_logprobs, logits, targets, temperature, logprobs, lse, entropies);
}

void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies) {
    check_logits("token_logprobs_backward", logits, targets, temperature);
    require(lse.size() == targets.size() && dlogprobs.size() == targets.size() &&
                (dentropies.empty() || dentropies.size() == targets.size()) &&
                entropies.size() >= dentropies.size(),
            "token_logprobs_backward: lse {}, dlogprobs {}, entropies {}, dentropies {} for {} rows",
            lse.size(), dlogprobs.size(), entropies.size(), dentropies.size(), targets.size());
    TANDEM_ROUTE(token_logprobs_backward, logits, targets, temperature, lse, dlogprobs, entropies,
                 dentropies);
}

}  // namespace tandem::ops
