#include "sync/codec/scales.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "common/error.h"

namespace tandem::sync {
namespace {

using engine::Part;
using engine::TensorInfo;

bool is_float(DType dtype) {
    return dtype == DType::float32 || dtype == DType::bfloat16;
}

std::int64_t blocks(std::int64_t n) {
    return (n + ops::kScaleBlock - 1) / ops::kScaleBlock;
}

bool along_blocks(std::int64_t start, std::int64_t size, std::int64_t whole) {
    const std::int64_t end = start + size;
    return start % ops::kScaleBlock == 0 && (end % ops::kScaleBlock == 0 || end == whole);
}

// The box of scales that a part of a weight needs.
struct ScaleBox {
    Shape start, size;
};

ScaleBox scale_box(const TensorInfo& tensor, const Part& part, const Shape& whole) {
    enforce(whole.size() == 2 && part.start.size() == 2 && part.size.size() == 2,
            "tensor '{}': '{}' {} is not a matrix and cannot be quantised", tensor.name, part.name,
            to_string(whole));
    if (tensor.dtype == DType::int8) return {{part.start[0], 0}, {part.size[0], 1}};
    ScaleBox box;
    for (std::size_t d = 0; d < 2; ++d) {
        enforce(along_blocks(part.start[d], part.size[d], whole[d]),
                "tensor '{}': the box {} at {} of '{}' {} does not lie along blocks of {}×{}", tensor.name,
                to_string(part.size), to_string(part.start), part.name, to_string(whole), ops::kScaleBlock,
                ops::kScaleBlock);
        box.start.push_back(part.start[d] / ops::kScaleBlock);
        box.size.push_back(blocks(part.size[d]));
    }
    return box;
}

// The trainer's whole tensor of that name, as a part.
Part whole_part(const std::string& name, const Shape& shape) {
    return {name, Shape(shape.size(), 0), shape, 0, {}};
}

bool contains(const Part& part, const ScaleBox& box) {
    bool inside = part.start.size() == 2 && part.size.size() == 2;
    for (std::size_t d = 0; inside && d < 2; ++d) {
        inside = part.start[d] <= box.start[d] && part.start[d] + part.size[d] >= box.start[d] + box.size[d];
    }
    return inside;
}

// The same engine rank must hold the scales of a part of a quantised weight.
void check_companion(const TensorInfo& weight, const Part& part, const Shape& whole,
                     const std::unordered_map<std::string, const TensorInfo*>& held) {
    const ScaleBox box = scale_box(weight, part, whole);
    const std::string companion = scale_name(weight.name, weight.dtype);
    const auto found = held.find(companion);
    enforce(found != held.end() && found->second->dtype == DType::float32,
            "the engine's tensor '{}' is {} but has no float32 tensor '{}' beside it", weight.name,
            dtype_name(weight.dtype), companion);
    const std::string name = scale_name(part.name, weight.dtype);
    const TensorInfo& scales = *found->second;
    const bool has_them = scales.parts.empty()
                              ? scales.name == name
                              : std::any_of(scales.parts.begin(), scales.parts.end(), [&](const Part& one) {
                                    return one.name == name && contains(one, box);
                                });
    enforce(has_them, "the engine's tensor '{}' does not hold the scales {} at {} of '{}'", companion,
            to_string(box.size), to_string(box.start), name);
}

int world_group(SourceLayout& source) {
    SourceGroup all{
        std::vector<int>(static_cast<std::size_t>(source.world_size)), {source.world_size}, {Replicate()}};
    std::iota(all.ranks.begin(), all.ranks.end(), 0);
    const auto found = std::find(source.groups.begin(), source.groups.end(), all);
    const auto index = static_cast<int>(found - source.groups.begin());
    if (found == source.groups.end()) source.groups.push_back(std::move(all));
    return index;
}

}  // namespace

bool is_quantized(DType dtype) {
    return dtype == DType::float8_e4m3fn || dtype == DType::int8;
}

std::string scale_name(const std::string& weight, DType dtype) {
    return weight + (dtype == DType::int8 ? "_scale" : "_scale_inv");
}

ops::ScaleGrid scale_grid(DType dtype, const Shape& weight) {
    return {dtype == DType::int8 ? ops::Quantization::int8_channel : ops::Quantization::fp8_block,
            weight.at(0), weight.at(1)};
}

TensorInfo scales_of(const TensorInfo& weight, const std::function<Shape(const std::string&)>& shape_of) {
    const Shape& shape = weight.shape;
    enforce(is_quantized(weight.dtype) && shape.size() >= 2, "tensor '{}' {} {} has no scales", weight.name,
            dtype_name(weight.dtype), to_string(shape));
    const std::int64_t block = weight.dtype == DType::int8 ? 1 : ops::kScaleBlock;
    const std::int64_t rows = shape[shape.size() - 2];
    const std::int64_t columns = shape.back();
    const std::int64_t scale_rows = weight.dtype == DType::int8 ? rows : blocks(rows);
    const std::int64_t scale_columns = weight.dtype == DType::int8 ? 1 : blocks(columns);
    TensorInfo scales{scale_name(weight.name, weight.dtype), shape, DType::float32, {}};
    scales.shape[shape.size() - 2] = scale_rows;
    scales.shape.back() = scale_columns;
    for (const Part& part : weight.parts) {
        ScaleBox box = scale_box(weight, part, shape_of(part.name));
        const std::int64_t column = part.offset % columns;
        const std::int64_t matrix = part.offset / columns / rows;
        const std::int64_t row = part.offset / columns % rows;
        const bool in_place = part.stride == Shape{columns, 1} &&
                              (weight.dtype == DType::int8 ? column == 0
                                                           : along_blocks(row, part.size[0], rows) &&
                                                                 along_blocks(column, part.size[1], columns));
        enforce(in_place, "tensor '{}' {}: part '{}' {} at element {} shares blocks of scales with others",
                weight.name, to_string(shape), part.name, to_string(part.size), part.offset);
        scales.parts.push_back({scale_name(part.name, weight.dtype),
                                std::move(box.start),
                                std::move(box.size),
                                (matrix * scale_rows + row / block) * scale_columns + column / block,
                                {scale_columns, 1}});
    }
    return scales;
}

std::vector<QuantizedTensor> add_quantized(SourceLayout& source, const EngineLayout& engines) {
    std::unordered_map<std::string, int> index;
    for (const SourceTensor& tensor : source.tensors) index.emplace(tensor.name, index.size());
    std::map<int, DType> wanted;  // what the engines hold of a tensor, where any holds it quantised
    std::unordered_map<int, DType> first_use;
    const auto use = [&](const std::string& name, const TensorInfo& tensor, const Part& part,
                         const std::unordered_map<std::string, const TensorInfo*>& held) {
        const auto found = index.find(name);
        if (found == index.end()) return;  // the planner says so
        const SourceTensor& from = source.tensors[static_cast<std::size_t>(found->second)];
        if (!is_float(from.dtype)) return;  // bytes as the trainer made them
        const DType before = first_use.emplace(found->second, tensor.dtype).first->second;
        enforce(before == tensor.dtype || (!is_quantized(before) && !is_quantized(tensor.dtype)),
                "tensor '{}' is wanted as {} and as {}: one tensor is quantised in one way or not at all",
                name, dtype_name(before), dtype_name(tensor.dtype));
        if (!is_quantized(tensor.dtype)) return;
        check_companion(tensor, part, from.shape, held);
        wanted.emplace(found->second, tensor.dtype);
    };
    for (const auto& tensors : engines) {
        std::unordered_map<std::string, const TensorInfo*> held;
        for (const TensorInfo& tensor : tensors) held.emplace(tensor.name, &tensor);
        for (const TensorInfo& tensor : tensors) {
            for (const Part& part : tensor.parts) use(part.name, tensor, part, held);
            if (tensor.parts.empty()) use(tensor.name, tensor, whole_part(tensor.name, tensor.shape), held);
        }
    }
    std::vector<QuantizedTensor> quantized;
    const int everywhere = wanted.empty() ? -1 : world_group(source);
    for (const auto& [values, dtype] : wanted) {
        SourceTensor& tensor = source.tensors[static_cast<std::size_t>(values)];
        const ops::ScaleGrid grid = scale_grid(dtype, tensor.shape);
        quantized.push_back({values, static_cast<int>(source.tensors.size()), tensor.dtype, grid});
        tensor.dtype = dtype;
        SourceTensor scales{scale_name(tensor.name, dtype),
                            {grid.scale_rows(), grid.scale_columns()},
                            DType::float32,
                            {everywhere}};
        source.tensors.push_back(std::move(scales));
    }
    return quantized;
}

}  // namespace tandem::sync
