#include "common/model/architecture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/json_text.h"
#include "common/model/config_json.h"
#include "common/model/rope_json.h"
#include "common/text_file.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// They are told apart elsewhere, or not at all. use_sliding_window: one that is in use is refused.
constexpr const char* kNotCompared[] = {
    "model_type", "dtype", "torch_dtype", "eos_token_id", "use_sliding_window", "max_position_embeddings"};

constexpr const char* kRope[] = {"rope_theta", "rope_scaling"};  // compared by what they come to

// Rounding of two ways to one frequency is below it; the smallest change of a parameter that anybody makes far above.
constexpr double kSameFrequency = 1e-6;

bool near(float a, float b) {
    return std::abs(double{a} - double{b}) <= kSameFrequency * std::max(std::abs(a), std::abs(b));
}

bool same(const RopeFrequencies& a, const RopeFrequencies& b) {
    return near(a.attention_factor, b.attention_factor) &&
           std::equal(a.inverse.begin(), a.inverse.end(), b.inverse.begin(), b.inverse.end(), near);
}

// What config.json's rotary keys say, each under its own name.
ordered_json rope_keys(const ModelConfig& config) {
    ordered_json written;
    write_rope(config, written);
    ordered_json keys;
    keys["rope_theta"] = written["rope_theta"];
    keys["rope_scaling.rope_type"] = to_string(config.rope_scaling.type);
    if (written["rope_scaling"].is_null()) return keys;
    for (const auto& [name, value] : written["rope_scaling"].items()) keys["rope_scaling." + name] = value;
    return keys;
}

// Keys that one of the two lacks are told only where both are of one kind: else the kind says it.
void compare_keys(const ordered_json& ours, const ordered_json& theirs, bool one_kind,
                  std::vector<Difference>& found) {
    for (const auto& [key, value] : ours.items()) {
        const auto other = theirs.find(key);
        if (other == theirs.end() && !one_kind) continue;
        const ordered_json they = other == theirs.end() ? ordered_json() : *other;
        if (they != value) found.push_back({key, value.dump(), they.dump()});
    }
    for (const auto& [key, value] : theirs.items()) {
        if (one_kind && !ours.contains(key)) found.push_back({key, "null", value.dump()});
    }
}

}  // namespace

Architecture::Architecture(const ModelConfig& config) : config_(config) {
    const ModelConfig initial;
    config_.max_position_embeddings = std::max<std::int64_t>(initial.max_position_embeddings, 1);
    config_.eos_token_id = initial.eos_token_id;
    config_.more_eos_token_ids.clear();
    config_.torch_dtype = initial.torch_dtype;
}

Architecture Architecture::from_json(const json& parsed, const std::string& file) {
    json looked_at = parsed;
    if (looked_at.is_object()) {
        for (const char* key : {"dtype", "torch_dtype", "eos_token_id"}) looked_at.erase(key);
    }
    return Architecture(config_of(looked_at, file));
}

ordered_json Architecture::as_json() const {
    auto keys = parse_ordered_json_text(to_json(config_));
    for (const char* key : kNotCompared) keys.erase(key);
    return keys;
}

std::vector<Difference> Architecture::differences(const Architecture& theirs) const {
    std::vector<Difference> found;
    ordered_json mine = as_json(), other = theirs.as_json();
    for (const char* key : kRope) {
        mine.erase(key);
        other.erase(key);
    }
    compare_keys(mine, other, config_.architecture() == theirs.config_.architecture(), found);
    // Of one head's width, so that another one, which is told above, does not show here too.
    const auto frequencies = [&](const ModelConfig& c) {
        return rope_frequencies(c.rope_theta, c.rope_scaling, config_.head_dim);
    };
    if (same(frequencies(config_), frequencies(theirs.config_))) return found;
    compare_keys(rope_keys(config_), rope_keys(theirs.config_),
                 config_.rope_scaling.type == theirs.config_.rope_scaling.type, found);
    return found;
}

Architecture read_architecture(const std::string& directory) {
    const std::string file = (std::filesystem::path(directory) / "config.json").string();
    return Architecture::from_json(parse_json_file(read_text_file(file), file), file);
}

std::string to_text(const std::vector<Difference>& differences, const std::string& ours,
                    const std::string& theirs) {
    std::string text;
    for (const Difference& one : differences) {
        const std::string& first = one.ours;
        text += text.empty()
                    ? fmt::format("{} is {} in {} and {} in {}", one.key, first, ours, one.theirs, theirs)
                    : fmt::format("; {}: {} and {}", one.key, first, one.theirs);
    }
    return text;
}

}  // namespace tandem::model
