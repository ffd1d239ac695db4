// What of config.json decides what the same tensors compute, as one value: two that are equal give the same answers, also
// where they are spelled differently. Who brings weights from one program into another compares it first, because no
// tensor shows it.
//
//   compared      family, sizes, heads and their width, eps, activation, biases, tying, and what the rotary keys come to:
//                 the frequencies of a head and the factor of its cosines and sines
//   not compared  dtype, stop tokens, max_position_embeddings (but where it changes the frequencies)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/model/model_config.h"

namespace tandem::model {

// A key of config.json, and what each side says or means by saying nothing, as JSON.
struct Difference {
    std::string key;  // "rope_scaling.factor", in transformers 4's names
    std::string ours;
    std::string theirs;
};

class Architecture {
  public:
    explicit Architecture(const ModelConfig& config);
    // From config.json, or from as_json() of another program: keys that are not compared are not looked at. Throws
    // ConfigError naming `file` and key: what we do not compute, malformed.
    static Architecture from_json(const nlohmann::json& parsed, const std::string& file);

    // As keys of config.json, every default written out.
    nlohmann::ordered_json as_json() const;
    // Empty: they are equal.
    std::vector<Difference> differences(const Architecture& theirs) const;
    friend bool operator==(const Architecture& a, const Architecture& b) { return a.differences(b).empty(); }
    // The tensors that it has (parameters.h).
    const ModelConfig& config() const { return config_; }

  private:
    ModelConfig config_;  // what is not compared has its initial value
};

// DIR/config.json. Throws ConfigError: missing, malformed, or of an architecture that we do not compute.
Architecture read_architecture(const std::string& directory);

// "rope_theta is 1000000.0 in OURS and 10000.0 in THEIRS; rms_norm_eps …"
std::string to_text(const std::vector<Difference>& differences, const std::string& ours,
                    const std::string& theirs);

}  // namespace tandem::model
