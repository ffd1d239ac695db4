#include "trainer/tensor_parallel/gradient_sums.h"

#include "common/sharding/tensor_cut.h"

namespace tandem::trainer {

GradientSum gradient_sum(const model::ParameterSpec& spec, int tp, bool sequence_parallel) {
    using model::Role;
    if (tp == 1) return GradientSum::none;
    switch (spec.role) {
        case Role::q_norm:
        case Role::k_norm:  // of this rank's heads
        case Role::norm:    // through this rank's logits
            return GradientSum::tensor;
        case Role::input_norm:
        case Role::post_norm:  // of this rank's rows
            return sequence_parallel ? GradientSum::tensor : GradientSum::none;
        case Role::k:
        case Role::v:  // through this rank's queries
            return tensor_cut(spec, tp).axes.size() > 1 ? GradientSum::copies : GradientSum::none;
        default:
            return GradientSum::none;
    }
}

}  // namespace tandem::trainer
