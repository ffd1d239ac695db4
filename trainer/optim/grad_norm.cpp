#include "trainer/optim/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "common/mesh/dist_reduce.h"
#include "common/ops/adamw.h"

namespace tandem::trainer {

double global_norm(Stream& stream, std::span<const Tensor> local_grads, comm::Communicator& shards) {
    double squares = 0;
    for (const Tensor& part : local_grads) squares += ops::sum_of_squares(stream, part);
    reduce_sums({&squares, 1}, shards);
    return std::sqrt(squares);
}

float clip_scale(double norm, float max_norm) {
    if (max_norm <= 0) return 1.0f;
    return static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

}  // namespace tandem::trainer
