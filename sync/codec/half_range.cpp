#include "sync/codec/half_range.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "common/dtensor/layout.h"
#include "common/error.h"
#include "common/ops/half.h"
#include "common/tensor/host_access.h"

namespace tandem::sync {
namespace {

constexpr std::int64_t kPiece = std::int64_t{4} << 20;  // elements of a GPU's that are on the host at a time

// Of an element of the rank's own piece, in the whole tensor.
std::string place(const DTensor& tensor, std::int64_t index) {
    const Shape& local = tensor.local().shape();
    const LocalLayout layout = tensor.layout();
    std::vector<std::string> at(local.size());
    for (std::size_t d = local.size(); d-- > 0; index /= local[d]) {
        at[d] = std::to_string(index_at(layout.runs[d], index % local[d]));
    }
    if (at.empty()) return "its element";
    if (at.size() == 1) return "row " + at[0];
    return fmt::format("row {}, column {}", at[0], fmt::join(at.begin() + 1, at.end(), ", "));
}

[[noreturn]] void refuse_value(const NamedTensor& named, std::int64_t index, float value) {
    throw Error(
        fmt::format("tensor '{}', {}: {} does not fit float16, in which the engine holds it (at most 65504): "
                    "start the engine with bfloat16 or float32",
                    named.name, place(named.tensor, index), value));
}

void check_tensor(const NamedTensor& named, HostAccess& access) {
    const Tensor& local = named.tensor.local();
    const Tensor flat = local.reshape({local.numel()});
    const std::int64_t step = local.device() == Device{} ? std::max<std::int64_t>(flat.numel(), 1) : kPiece;
    for (std::int64_t first = 0; first < flat.numel(); first += step) {
        const Tensor part = access.read(flat.rows(first, std::min(step, flat.numel() - first)));
        const std::int64_t found = ops::first_beyond_float16(part);
        if (found < 0) continue;
        const float value = part.dtype() == DType::float32
                                ? reinterpret_cast<const float*>(part.raw())[found]
                                : static_cast<float>(reinterpret_cast<const bfloat16*>(part.raw())[found]);
        refuse_value(named, first + found, value);
    }
}

}  // namespace

HalfRange::HalfRange(const ReshardPlan& plan) {
    std::map<std::string, DType> held;
    for (const SourceTensor& tensor : plan.source().tensors) held[tensor.name] = tensor.dtype;
    const auto use = [&](const std::string& name) {
        if (const auto found = held.find(name); found != held.end() && found->second != DType::float16)
            names_.insert(name);
    };
    for (const auto& tensors : plan.engine()) {
        for (const engine::TensorInfo& tensor : tensors) {
            if (tensor.dtype != DType::float16) continue;
            for (const engine::Part& part : tensor.parts) use(part.name);
            if (tensor.parts.empty()) use(tensor.name);
        }
    }
}

void HalfRange::check(const WeightSource& source) const {
    if (names_.empty()) return;
    HostAccess access;
    for (const NamedTensor& named : source.tensors()) {
        if (names_.contains(named.name)) check_tensor(named, access);
    }
}

}  // namespace tandem::sync
