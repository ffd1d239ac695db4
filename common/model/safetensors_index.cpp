#include "common/model/safetensors_index.h"

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"

namespace tandem::model {

SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& file) {
    const nlohmann::json index = parse_json_file(text, file);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
        throw ConfigError(file, "weight_map", "missing");
    }
    SafetensorsIndex names;
    for (const auto& [name, value] : index["weight_map"].items()) {
        const std::string shard = value.is_string() ? value.get<std::string>() : "";
        const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                           shard.find('/') == std::string::npos && shard.find('\0') == std::string::npos;
        if (!plain) throw ConfigError(file, name, "must name a file of the same directory");
        names[name] = shard;
    }
    return names;
}

std::string to_json(const SafetensorsIndex& index, std::size_t total_bytes) {
    nlohmann::ordered_json out;
    out["metadata"] = {{"total_size", total_bytes}};
    out["weight_map"] = index;
    return out.dump(2) + "\n";
}

}  // namespace tandem::model
