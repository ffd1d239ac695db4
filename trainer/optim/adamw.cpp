#include "trainer/optim/adamw.h"

#include <array>

#include "trainer/offload/in_chunks.h"

namespace tandem::trainer {
namespace {

FlatState moments(std::int64_t numel, const std::string& directory) {
    if (directory.empty()) return {numel, DType::float32, "optimizer", cpu_pool()};
    return FlatState::parked_zeros(numel, DType::float32, "optimizer", cpu_pool(), directory);
}

}  // namespace

AdamW::AdamW(std::int64_t numel, float beta1, float beta2, float eps, float weight_decay,
             const std::string& offload_directory)
    : exp_avg_(moments(numel, offload_directory)), exp_avg_sq_(moments(numel, offload_directory)) {
    params_.beta1 = beta1;
    params_.beta2 = beta2;
    params_.eps = eps;
    params_.weight_decay = weight_decay;
}

void AdamW::step(Stream& stream, FlatState& params, const Tensor& grads, double lr, float grad_scale) {
    params_.lr = static_cast<float>(lr);
    params_.grad_scale = grad_scale;
    if (params.resident() && exp_avg_.resident() && exp_avg_sq_.resident()) {
        ops::adamw(stream, params.tensor(), grads, exp_avg_.tensor(), exp_avg_sq_.tensor(), params_);
    } else {
        const std::array states{&params, &exp_avg_, &exp_avg_sq_};
        if (!io_) io_ = std::make_unique<Stream>(Stream::make_worker("offload"));
        in_chunks(*io_, stream, states, [&](std::int64_t first, const std::vector<Tensor>& parts) {
            ops::adamw(stream, parts[0], grads.rows(first, parts[0].numel()), parts[1], parts[2], params_);
        });
    }
    ++params_.step;
}

void AdamW::reset(Stream& stream) {
    exp_avg_.zero(stream);
    exp_avg_sq_.zero(stream);
    params_.step = 1;
}

}  // namespace tandem::trainer
