// AdamW with fp32 state over one rank's flat shard. Padding inside the shard has zero weight and zero
// gradient, and stays zero. The moments may be offloaded, from the start or between steps: a step then streams
// over them, with the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/ops/adamw.h"
#include "common/tensor/tensor.h"
#include "trainer/offload/flat_state.h"

namespace tandem::trainer {

class AdamW {
  public:
    // offload_directory: where moments that are offloaded from the start have their files (a GPU's: none);
    // empty: in memory, which can be offloaded later where its pages go.
    AdamW(Stream& stream, std::int64_t numel, float beta1, float beta2, float eps, float weight_decay,
          const std::string& offload_directory = "", Pages pages = Pages::stay);

    // One step, with gradients multiplied by grad_scale first. Returns of how many elements the parameter or a
    // moment is infinite or NaN afterwards. Blocking. `rounded`: parts of the parameters, in order, that are written in
    // bfloat16, too.
    std::int64_t step(Stream& stream, FlatState& params, const Tensor& grads, double lr, float grad_scale,
                      std::span<const PartCopy> rounded);
    // What step() would return; nothing changes.
    std::int64_t look(Stream& stream, FlatState& params, const Tensor& grads, double lr, float grad_scale);
    // Elements from `first` on take steps of `factor` times the learning rate.
    void set_tail(std::int64_t first, double factor);
    void reset(Stream& stream);  // moments and step count to zero
    std::int64_t steps() const { return params_.step - 1; }
    void set_steps(std::int64_t steps) { params_.step = steps + 1; }  // of the moments that were loaded
    FlatState& exp_avg() { return exp_avg_; }
    FlatState& exp_avg_sq() { return exp_avg_sq_; }
    const FlatState& exp_avg() const { return exp_avg_; }
    const FlatState& exp_avg_sq() const { return exp_avg_sq_; }

  private:
    std::int64_t pass(Stream& stream, FlatState& params, const Tensor& grads,
                      std::span<const PartCopy> rounded);
    // Elements [first, first + params.numel()) of the shard; those that are not finite are added to `non_finite`.
    void step_part(Stream& stream, std::int64_t first, const Tensor& params, const Tensor& grads,
                   const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& non_finite,
                   std::span<const PartCopy> rounded) const;

    ops::AdamWParams params_;
    std::int64_t tail_;  // where it begins; the end without one
    double tail_factor_ = 1;
    FlatState exp_avg_;
    FlatState exp_avg_sq_;
    std::unique_ptr<Stream> in_, out_;  // from the first step that streams
};

}  // namespace tandem::trainer
