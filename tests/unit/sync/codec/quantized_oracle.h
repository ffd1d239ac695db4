// The definition of quantised weights written once more on its own, a model to quantise, and what an engine
// must then hold. For tests of quantised engines.
#pragma once

#include <cmath>
#include <map>

#include "common/ops/quantize.h"
#include "sync/codec/scales.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {

// Blocks that end early in both dims, blocks that a shard's border cuts, odd rows, one row, one column.
inline const std::map<std::string, Shape> kWeights{{"a.weight", {300, 200}}, {"b.weight", {129, 257}},
                                                   {"c.weight", {1, 5}},     {"d.weight", {7, 1000}},
                                                   {"e.weight", {97, 31}},   {"f.weight", {260, 1}}};

// The trainer's; what is not in kWeights goes over as it is.
inline std::vector<TensorInfo> model() {
    std::vector<TensorInfo> tensors{{"embed.weight", {50, 48}, DType::bfloat16, {}},
                                    {"norm.weight", {64}, DType::bfloat16, {}}};
    for (const auto& [name, shape] : kWeights) tensors.push_back({name, shape, DType::bfloat16, {}});
    return tensors;
}

// One engine rank that holds whole tensors, those of kWeights in `dtype`.
inline std::vector<TensorInfo> engine_tensors(DType dtype) {
    std::vector<TensorInfo> tensors;
    for (TensorInfo tensor : model()) {
        if (kWeights.contains(tensor.name)) {
            tensor.dtype = dtype;
            tensors.push_back(scales_of(tensor, [](const std::string&) { return Shape(); }));
        }
        tensors.push_back(tensor);
    }
    return tensors;
}

// Value of a trainer's element after set_step(step).
inline float trainer_value(std::size_t tensor, std::size_t i, DType held, int step) {
    const float value = element_value(tensor, i, step);
    return held == DType::bfloat16 ? static_cast<float>(bfloat16(value)) : value;
}

// The nearest of the format's values by search, ties to the even code, in fp64.
inline std::uint8_t nearest_e4m3(float value) {
    std::uint8_t best = 0;
    double distance = INFINITY;
    for (int code = 0; code < 0x7f; ++code) {  // 0x7f is NaN
        const int exponent = code >> 3;
        const double mantissa = code & 7;
        const double decoded =
            exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
        const double apart = std::abs(std::abs(static_cast<double>(value)) - decoded);
        if (apart < distance || (apart == distance && code % 2 == 0)) {
            best = static_cast<std::uint8_t>(code);
            distance = apart;
        }
    }
    return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

inline double decode_e4m3(std::uint8_t code) {
    const int exponent = (code >> 3) & 15;
    const double mantissa = code & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// The oracle of a quantised weight: scales by block or row, then every element. Sampled in `every`th
// elements, since the search is slow.
struct Oracle {
    Oracle(std::size_t tensor, const Shape& shape, DType held, DType to, int step) : shape(shape), to(to) {
        values.resize(static_cast<std::size_t>(numel(shape)));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = trainer_value(tensor, i, held, step);
        for (std::size_t i = 0; i < values.size(); ++i) {
            float& most = amax[scale_index(i)];
            most = std::max(most, std::abs(values[i]));
        }
    }
    std::size_t scale_index(std::size_t i) const {
        const auto columns = static_cast<std::size_t>(shape[1]);
        if (to == DType::int8) return i / columns;
        return i / columns / 128 * ((columns + 127) / 128) + i % columns / 128;
    }
    float scale(std::size_t i) const {
        const float most = amax.at(scale_index(i));
        return most == 0 ? 1.0f : most / (to == DType::int8 ? 127.0f : 448.0f);
    }
    std::uint8_t code(std::size_t i) const {
        const float scaled = values[i] / scale(i);
        if (to == DType::float8_e4m3fn) return nearest_e4m3(scaled);
        return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::lrint(scaled)));
    }
    Shape shape;
    DType to;
    std::vector<float> values;
    std::map<std::size_t, float> amax;
};

inline std::size_t index_of(const std::vector<TensorInfo>& tensors, const std::string& name) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (tensors[t].name == name) return t;
    }
    ADD_FAILURE() << "no tensor " << name;
    return 0;
}

// Bytes by the definition, and what they mean by the format's bound.
inline void expect_quantized(const TestTarget& target, DType held, DType to, int step) {
    std::vector<TensorInfo> tensors;
    for (const auto& weight : target.weights()) tensors.push_back(weight.info);
    for (const auto& [name, shape] : kWeights) {
        const Oracle oracle(index_of(model(), name), shape, held, to, step);
        const Span codes = target.reading(index_of(tensors, name));
        const Span memory = target.reading(index_of(tensors, scale_name(name, to)));
        const auto* scales = reinterpret_cast<const float*>(memory.data);
        ASSERT_EQ(memory.bytes, oracle.amax.size() * sizeof(float));
        for (std::size_t i = 0; i < oracle.values.size(); ++i) {
            const auto code = static_cast<std::uint8_t>(codes.data[i]);
            const double scale = scales[oracle.scale_index(i)];
            ASSERT_EQ(static_cast<float>(scale), oracle.scale(i)) << name << " element " << i;
            if (i % 7 == 0) {
                ASSERT_EQ(code, oracle.code(i)) << name << " element " << i;
            }
            const double value = oracle.values[i];
            const bool fp8 = to == DType::float8_e4m3fn;
            const double bound = fp8 ? std::max(std::abs(value) / 16, scale / 1024) : scale / 2;
            const double decoded =
                fp8 ? decode_e4m3(code) : static_cast<double>(static_cast<std::int8_t>(code));
            ASSERT_LE(std::abs(decoded * scale - value), bound + std::ldexp(std::abs(value), -22))
                << name << " element " << i;
        }
    }
}

}  // namespace tandem::sync
