#include "trainer/optim/adamw.h"

#include <algorithm>
#include <array>

#include "trainer/offload/in_chunks.h"

namespace tandem::trainer {
namespace {

FlatState moments(Stream& stream, std::int64_t numel, const std::string& directory, Pages pages) {
    MemoryPool& pool = device_pool(stream.device());
    if (directory.empty()) return {stream, numel, DType::float32, "optimizer", pool, pages};
    return FlatState::offloaded_zeros(numel, DType::float32, "optimizer", pool, directory);
}

}  // namespace

AdamW::AdamW(Stream& stream, std::int64_t numel, float beta1, float beta2, float eps, float weight_decay,
             const std::string& offload_directory, Pages pages)
    : tail_(numel),
      exp_avg_(moments(stream, numel, offload_directory, pages)),
      exp_avg_sq_(moments(stream, numel, offload_directory, pages)) {
    params_.beta1 = beta1;
    params_.beta2 = beta2;
    params_.eps = eps;
    params_.weight_decay = weight_decay;
}

std::int64_t AdamW::step(Stream& stream, FlatState& params, const Tensor& grads, double lr, float grad_scale,
                         std::span<const PartCopy> rounded) {
    params_.lr = static_cast<float>(lr);
    params_.grad_scale = grad_scale;
    const std::int64_t non_finite = pass(stream, params, grads, rounded);
    ++params_.step;
    return non_finite;
}

std::int64_t AdamW::look(Stream& stream, FlatState& params, const Tensor& grads, double lr,
                         float grad_scale) {
    const ops::AdamWParams before = params_;
    params_.lr = static_cast<float>(lr);
    params_.grad_scale = grad_scale;
    params_.write = false;
    const std::int64_t non_finite = pass(stream, params, grads, {});
    params_ = before;
    return non_finite;
}

// One pass over all states, as params_ says.
std::int64_t AdamW::pass(Stream& stream, FlatState& params, const Tensor& grads,
                         std::span<const PartCopy> rounded) {
    std::int64_t here = 0;
    const bool on_cpu = stream.device().type == DeviceType::cpu;
    const Tensor non_finite =
        on_cpu ? Tensor::borrow({reinterpret_cast<std::byte*>(&here), sizeof(here)}, {1}, DType::int64)
               : Tensor::zeros(stream, {1}, DType::int64, "optimizer");
    if (params.resident() && exp_avg_.resident() && exp_avg_sq_.resident()) {
        step_part(stream, 0, params.tensor(), grads, exp_avg_.tensor(), exp_avg_sq_.tensor(), non_finite,
                  rounded);
    } else {
        const std::array states{&params, &exp_avg_, &exp_avg_sq_};
        if (!in_) in_ = std::make_unique<Stream>(Stream::make(stream.device(), "offload in"));
        if (!out_) out_ = std::make_unique<Stream>(Stream::make(stream.device(), "offload out"));
        in_chunks(*in_, *out_, stream, states, [&](std::int64_t first, const std::vector<Tensor>& parts) {
            step_part(stream, first, parts[0], grads.rows(first, parts[0].numel()), parts[1], parts[2],
                      non_finite, rounded);
        });
    }
    if (!on_cpu) return non_finite.to_host(stream).values<std::int64_t>()[0];
    stream.synchronize();
    return here;
}

void AdamW::set_tail(std::int64_t first, double factor) {
    if (factor != 1) tail_ = first;
    tail_factor_ = factor;
}

// In runs that neither the tail nor a part of `rounded` begins or ends within.
void AdamW::step_part(Stream& stream, std::int64_t first, const Tensor& params, const Tensor& grads,
                      const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& non_finite,
                      std::span<const PartCopy> rounded) const {
    const std::int64_t last = first + params.numel();
    const auto end_of = [](const PartCopy& part) { return part.first + part.copy.numel(); };
    auto part = rounded.begin();
    for (std::int64_t begin = first, end; begin < last; begin = end) {
        const bool in_tail = begin >= tail_;
        while (part != rounded.end() && end_of(*part) <= begin) ++part;
        end = in_tail ? last : std::min(last, tail_);
        Tensor copy;
        if (part != rounded.end() && part->first <= begin) {
            end = std::min(end, end_of(*part));
            copy = part->copy.rows(begin - part->first, end - begin);
        } else if (part != rounded.end()) {
            end = std::min(end, part->first);
        }
        ops::AdamWParams with = params_;
        if (in_tail) with.lr = static_cast<float>(tail_factor_ * static_cast<double>(params_.lr));
        const auto run = [&](const Tensor& of) { return of.rows(begin - first, end - begin); };
        ops::adamw(stream, run(params), run(grads), run(exp_avg), run(exp_avg_sq), with, non_finite, copy);
    }
}

void AdamW::reset(Stream& stream) {
    exp_avg_.zero(stream);
    exp_avg_sq_.zero(stream);
    params_.step = 1;
}

}  // namespace tandem::trainer
