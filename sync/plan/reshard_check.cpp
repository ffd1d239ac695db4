#include "sync/plan/reshard_check.h"

#include <algorithm>
#include <numeric>

#include "common/error.h"
#include "common/ops/half.h"

namespace tandem::sync {
namespace {

using engine::Part;
using engine::TensorInfo;

struct Dim {
    std::int64_t size = 0;
    std::int64_t stride = 0;
};

// The dims of a part, contiguous ones merged, the largest stride first.
struct Footprint {
    const Part* part = nullptr;
    std::vector<Dim> dims;
    bool one_run() const { return dims.empty() || (dims.size() == 1 && dims[0].stride == 1); }
    std::int64_t stop() const { return part->offset + (dims.empty() ? 1 : dims[0].size); }  // of one run
};

Footprint footprint(const TensorInfo& tensor, const Part& part, int engine_rank) {
    Footprint result{&part, {}};
    std::int64_t last = part.offset;
    for (std::size_t d = 0; d < part.size.size(); ++d) {
        if (part.size[d] == 1) continue;
        enforce(part.stride[d] >= 1, "engine rank {}, tensor '{}': part '{}' has stride {}", engine_rank,
                tensor.name, part.name, to_string(part.stride));
        last += (part.size[d] - 1) * part.stride[d];
        result.dims.push_back({part.size[d], part.stride[d]});
    }
    enforce(part.offset >= 0 && last < numel(tensor.shape),
            "engine rank {}, tensor '{}': part '{}' reaches elements {} to {} of {}", engine_rank,
            tensor.name, part.name, part.offset, last, numel(tensor.shape));
    auto& dims = result.dims;
    std::stable_sort(dims.begin(), dims.end(), [](Dim a, Dim b) { return a.stride > b.stride; });
    for (std::size_t i = dims.size(); i-- > 1;) {
        if (dims[i - 1].stride != dims[i].stride * dims[i].size) continue;
        dims[i - 1] = {dims[i - 1].size * dims[i].size, dims[i].stride};
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return result;
}

[[noreturn]] void refuse_gap(const TensorInfo& tensor, int engine_rank, std::int64_t start,
                             std::int64_t stop) {
    throw BadInput(fmt::format("engine rank {}, tensor '{}' {}: no part covers its elements [{}, {})",
                               engine_rank, tensor.name, to_string(tensor.shape), start, stop));
}

[[noreturn]] void refuse_overlap(const TensorInfo& tensor, int engine_rank, const Part& part,
                                 std::int64_t element) {
    throw BadInput(fmt::format("engine rank {}, tensor '{}' {}: part '{}' covers element {} again",
                               engine_rank, tensor.name, to_string(tensor.shape), part.name, element));
}

void check_runs(const TensorInfo& tensor, int engine_rank, std::vector<Footprint>& parts) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Footprint& a, const Footprint& b) { return a.part->offset < b.part->offset; });
    std::int64_t covered = 0;
    for (const Footprint& one : parts) {
        if (one.part->offset > covered) refuse_gap(tensor, engine_rank, covered, one.part->offset);
        if (one.part->offset < covered) refuse_overlap(tensor, engine_rank, *one.part, one.part->offset);
        covered = one.stop();
    }
    if (covered < numel(tensor.shape)) refuse_gap(tensor, engine_rank, covered, numel(tensor.shape));
}

// The largest unit in which all runs, steps and offsets are whole: what lies side by side in a row is then a
// few marks wide.
std::int64_t common_unit(const TensorInfo& tensor, const std::vector<Footprint>& parts) {
    std::int64_t unit = numel(tensor.shape);
    for (const Footprint& one : parts) {
        unit = std::gcd(unit, one.part->offset);
        const bool run = !one.dims.empty() && one.dims.back().stride == 1;
        unit = std::gcd(unit, run ? one.dims.back().size : 1);
        for (std::size_t i = 0; i + (run ? 1 : 0) < one.dims.size(); ++i)
            unit = std::gcd(unit, one.dims[i].stride);
    }
    return unit;
}

// One mark a unit: for parts that interleave, like columns of two tensors side by side.
class Marks {
  public:
    Marks(const TensorInfo& tensor, int engine_rank, std::int64_t unit)
        : tensor_(tensor),
          engine_rank_(engine_rank),
          unit_(unit),
          seen_(static_cast<std::size_t>(numel(tensor.shape) / unit), false) {}
    void mark(const Footprint& one, std::size_t dim, std::int64_t offset) {
        if (dim < one.dims.size() && one.dims[dim].stride >= unit_) {
            for (std::int64_t i = 0; i < one.dims[dim].size; ++i)
                mark(one, dim + 1, offset + i * one.dims[dim].stride);
            return;
        }
        const std::int64_t run = dim < one.dims.size() ? one.dims[dim].size : 1;
        for (std::int64_t at = offset; at < offset + run; at += unit_) {
            auto seen = seen_[static_cast<std::size_t>(at / unit_)];
            if (seen) refuse_overlap(tensor_, engine_rank_, *one.part, at);
            seen = true;
        }
    }
    void finish() const {
        const auto gap = std::find(seen_.begin(), seen_.end(), false);
        if (gap == seen_.end()) return;
        const auto end = std::find(gap, seen_.end(), true);
        refuse_gap(tensor_, engine_rank_, (gap - seen_.begin()) * unit_, (end - seen_.begin()) * unit_);
    }

  private:
    const TensorInfo& tensor_;
    int engine_rank_;
    std::int64_t unit_;
    std::vector<bool> seen_;
};

}  // namespace

void check_coverage(const TensorInfo& tensor, int engine_rank) {
    std::vector<Footprint> parts;
    bool runs = true;
    for (const Part& part : tensor.parts) {
        enforce(part.stride.size() == part.size.size(),
                "engine rank {}, tensor '{}': part '{}' has {} dims and {} strides", engine_rank, tensor.name,
                part.name, part.size.size(), part.stride.size());
        if (numel(part.size) == 0) continue;
        parts.push_back(footprint(tensor, part, engine_rank));
        runs = runs && parts.back().one_run();
    }
    if (runs) return check_runs(tensor, engine_rank, parts);
    Marks marks(tensor, engine_rank, common_unit(tensor, parts));
    for (const Footprint& one : parts) marks.mark(one, 0, one.part->offset);
    marks.finish();
}

bool copy_casts(DType from, DType to) {
    return ops::copy_casts(from, to);
}

}  // namespace tandem::sync
