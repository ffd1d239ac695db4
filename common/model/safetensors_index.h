// model.safetensors.index.json: which file of a Hugging Face directory holds which tensor.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace tandem::model {

using SafetensorsIndex = std::map<std::string, std::string>;  // tensor -> name of a file beside the index

// Throws ConfigError naming `file` and the tensor: no weight_map, a name that is no file of the same folder.
SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& file);
std::string to_json(const SafetensorsIndex& index, std::size_t total_bytes);

}  // namespace tandem::model
