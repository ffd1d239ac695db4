#include "sync/session/verify.h"

#include "common/error.h"

namespace tandem::sync {
namespace {

// One element at a time, on purpose: this is what the sync's fused copy is held against.
Tensor cast(const Tensor& from, DType to) {
    if (from.dtype() == to) return from;
    Tensor result = Tensor::empty(from.shape(), to, "sync verify");
    const std::int64_t count = from.numel();
    if (from.dtype() == DType::float32 && to == DType::bfloat16) {
        for (std::int64_t i = 0; i < count; ++i) result.data<bfloat16>()[i] = bfloat16(from.data<float>()[i]);
    } else {
        require(from.dtype() == DType::bfloat16 && to == DType::float32, "no cast from {} to {}",
                dtype_name(from.dtype()), dtype_name(to));
        for (std::int64_t i = 0; i < count; ++i) {
            result.data<float>()[i] = static_cast<float>(from.data<bfloat16>()[i]);
        }
    }
    return result;
}

}  // namespace

WeightsMatch compare_weights(comm::Communicator& world, const WeightSource& source, const Plan& plan,
                             const std::vector<std::size_t>& order, engine::Engine* engine,
                             std::chrono::milliseconds deadline) {
    Health health;
    std::vector<ops::Checksum> held;
    try {
        source.ready().wait(Deadline::after(deadline));
        if (engine != nullptr) held = engine->checksums(Deadline::after(deadline));
    } catch (const std::exception& error) {
        health.fail("checksums", engine != nullptr ? engine->peer() : "", -1, error.what());
    }
    agree(world, health, "comparing weights");
    std::string first_mismatch;
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
        const Tensor full = source.tensors()[order[t]].tensor.full_tensor();
        if (engine == nullptr) continue;
        const engine::TensorInfo& info = plan.tensors[t].info;
        const bool same = held[t] == ops::checksum(cast(full, info.dtype).span());
        if (!same && first_mismatch.empty()) first_mismatch = info.name;
    }
    WeightsMatch result;
    result.first_mismatch = broadcast_text(world, first_mismatch);
    result.match = result.first_mismatch.empty();
    return result;
}

}  // namespace tandem::sync
