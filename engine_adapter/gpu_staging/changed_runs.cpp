#include "engine_adapter/gpu_staging/changed_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "common/error.h"
#include "common/ops/delta.h"

namespace tandem::engine {
namespace {

constexpr const char* kTag = "engine.changes";
constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();

bool has_nan(DType dtype) {
    return dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16;
}

template <typename T>
bool any_nan(ConstSpan values) {
    const std::span<const T> all(reinterpret_cast<const T*>(values.data), values.bytes / sizeof(T));
    return std::any_of(all.begin(), all.end(), [](T one) { return std::isnan(static_cast<float>(one)); });
}

// values: in host memory.
void require_numbers(const TensorInfo& tensor, ConstSpan values) {
    const bool found = tensor.dtype == DType::float32    ? any_nan<float>(values)
                       : tensor.dtype == DType::bfloat16 ? any_nan<bfloat16>(values)
                                                         : any_nan<float16>(values);
    enforce(!found, "{} holds NaN: a server that is sent changes takes NaN for \"unchanged\"", tensor.name);
}

// delta_encode compares bits, and knows elements by their width.
DType of_width(std::size_t width) {
    return width == 2 ? DType::bfloat16 : DType::float32;
}

Buffer download(Stream& stream, ConstSpan from) {
    Buffer to(from.bytes, kTag, stream.device().type == DeviceType::cpu ? cpu_pool() : pinned_pool());
    copy(stream, from, to.span());
    stream.synchronize();
    return to;
}

}  // namespace

ChangedRuns::ChangedRuns(const std::vector<TensorInfo>& tensors, const PackedLayout& layout,
                         std::uint64_t run_bytes)
    : tensors_(tensors), layout_(layout) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const TensorInfo& tensor = tensors[i];
        enforce(has_nan(tensor.dtype), "{} is of {}: changes can be sent of float32, bfloat16 and float16",
                tensor.name, dtype_name(tensor.dtype));
        const std::uint64_t width = dtype_size(tensor.dtype);
        const std::uint64_t elements = tensor_bytes(tensor) / width;
        enforce(elements <= kMost, "{} has {} elements: changes are sent with int32 indices, up to {}",
                tensor.name, elements, kMost);
        const std::uint64_t most =
            run_bytes == 0 ? std::max<std::uint64_t>(elements, 1)
                           : std::max<std::uint64_t>(run_bytes / (sizeof(std::int32_t) + width), 1);
        for (std::uint64_t first = 0; first < elements; first += most) {
            pieces_.push_back({i, first, std::min(most, elements - first)});
            largest_ = std::max(largest_, bytes(pieces_.back()));
        }
    }
}

std::size_t ChangedRuns::begin(const Piece& piece) const {
    return layout_.begin[piece.tensor] + piece.first * width(piece);
}

ChangedRun ChangedRuns::whole(Stream& stream, const Piece& piece, ConstSpan staged) const {
    const Buffer values = download(stream, staged.subspan(begin(piece), bytes(piece)));
    require_numbers(tensors_[piece.tensor], values.span());
    return {piece.tensor, piece.first, piece.count};
}

std::vector<ChangedRun> ChangedRuns::all(Stream& stream, ConstSpan staged, Span base) const {
    copy(stream, staged, base);
    std::vector<ChangedRun> runs;
    for (const Piece& piece : pieces_) runs.push_back(whole(stream, piece, staged));
    return runs;
}

std::vector<ChangedRun> ChangedRuns::since(Stream& stream, ConstSpan staged, Span base) const {
    const Buffer scratch(largest_, kTag, device_pool(stream.device()));
    std::uint64_t room = layout_.bytes;
    std::vector<ChangedRun> runs;
    for (const Piece& piece : pieces_) {
        const DType dtype = of_width(width(piece));
        const auto elements = static_cast<std::int64_t>(piece.count);
        const ops::DeltaResult delta =
            ops::delta_encode(stream, {staged.data + begin(piece), bytes(piece), 1, elements, dtype, dtype},
                              base.subspan(begin(piece), bytes(piece)), scratch.span());
        if (delta.codec == ops::DeltaCodec::none) continue;
        ChangedRun run{piece.tensor, piece.first, static_cast<std::uint64_t>(delta.changed)};
        const std::uint64_t taken = run.bytes(width(piece));
        if (delta.codec == ops::DeltaCodec::dense || taken > room) {
            runs.push_back(whole(stream, piece, staged));
            continue;
        }
        room -= taken;
        const Buffer encoded = download(stream, scratch.span().subspan(0, delta.bytes));
        run.indices = Buffer(run.count * sizeof(std::int32_t), kTag);
        const ConstSpan values = ops::delta_positions(
            delta.codec, encoded.span(), width(piece), elements, static_cast<std::int32_t>(piece.first),
            {reinterpret_cast<std::int32_t*>(run.indices.data()), run.count});
        run.values = Buffer(values.bytes, kTag);
        std::copy_n(values.data, values.bytes, run.values.data());
        require_numbers(tensors_[piece.tensor], run.values.span());
        runs.push_back(std::move(run));
    }
    return runs;
}

}  // namespace tandem::engine
