// The checks that hold on every device, then the way to the backend.
#include "common/ops/sampling.h"

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {

void sample_tokens(Stream& stream, const Tensor& logits, std::span<const Sampling> samples,
                   std::span<std::int32_t> tokens, std::span<float> logprobs) {
    constexpr const char* kOp = "sample_tokens";
    detail::check_ndim(kOp, "logits", logits, 2);
    detail::check_dtype(kOp, "logits", logits, DType::float32);
    require(logits.dim(1) > 0 || samples.empty(), "{}: logits {} have no columns", kOp,
            to_string(logits.shape()));
    require(tokens.size() == samples.size(), "{}: room for {} tokens, {} samples", kOp, tokens.size(),
            samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const Sampling& s = samples[i];
        require(s.row >= 0 && s.row < logits.dim(0), "{}: sample {} takes row {} of {}", kOp, i, s.row,
                logits.dim(0));
        require(s.temperature >= 0.0f && s.min_p >= 0.0f && s.min_p <= 1.0f && s.uniform >= 0.0 &&
                    s.uniform < 1.0,
                "{}: sample {}: temperature {}, min_p {}, random number {}", kOp, i, s.temperature, s.min_p,
                s.uniform);
        require(!s.logprob || logprobs.size() == samples.size(), "{}: room for {} log-probs, {} samples", kOp,
                logprobs.size(), samples.size());
    }
    TANDEM_ROUTE(sample_tokens, logits, samples, tokens, logprobs);
}

}  // namespace tandem::ops
