// Rotary embedding as config.json describes it, and the frequencies that follow: transformers' rope types
// (modeling_rope_utils.py) of the families that we read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::model {

// How the frequencies theta^(-2i / head_dim) are changed for longer contexts.
//
//   type      inverse frequency f'                                         config.json must give
//   standard  f                                                            nothing (its word is "default")
//   linear    f / factor                                                   factor
//   llama3    f / factor for wavelengths over original / low_freq_factor,  factor, low_freq_factor,
//             f for those under original / high_freq_factor,               high_freq_factor
//             smooth between
//   yarn      f / factor below beta_slow rotations in the original         factor (null: context / original)
//             context, f above beta_fast, a ramp between; cosines and
//             sines times the attention factor
//
// original: original_max_position_embeddings; the model's context where config.json does not give it.
struct RopeScaling {
    enum class Type : std::uint8_t { standard, linear, llama3, yarn };
    Type type = Type::standard;
    double factor = 1;
    std::int64_t original_max_position_embeddings = 0;
    double low_freq_factor = 1;
    double high_freq_factor = 4;
    double beta_fast = 32;
    double beta_slow = 1;
    std::optional<double> attention_factor;  // absent: from factor and the two mscales
    std::optional<double> mscale;
    std::optional<double> mscale_all_dim;
    bool truncate = true;  // the ramp's ends are whole dimensions

    friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

std::string to_string(RopeScaling::Type type);  // config.json's word

struct RopeFrequencies {
    std::vector<float> inverse;     // [head_dim / 2], computed in fp64
    float attention_factor = 1.0f;  // of cosines and sines
};
RopeFrequencies rope_frequencies(double theta, const RopeScaling& scaling, std::int64_t head_dim);

}  // namespace tandem::model
