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
//   type      inverse frequency f'                                               needs
//   standard  f                                                                  (config.json: "default")
//   linear    f / factor                                                         factor
//   llama3    f / factor for wavelengths over original / low_freq_factor, f      factor, low and
//   high_freq_factor,
//             for those under original / high_freq_factor, smooth between        original
//   yarn      f / factor below beta_slow rotations in the original context,      factor, original; the rest
//   has
//             f above beta_fast, a ramp between; cos and sin times               defaults
//             the attention factor
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
