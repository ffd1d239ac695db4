// The header of one safetensors file, parsed and checked: 8 bytes of little-endian length, that many bytes of
// JSON, data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "common/device/device.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tandem::model {

struct SafetensorsEntry {
    DType dtype = DType::float32;
    Shape shape;
    std::size_t begin = 0;  // bytes, from the start of the file
    std::size_t end = 0;
};

// `bytes` is the whole file. Throws ConfigError naming `file` and the tensor.
std::map<std::string, SafetensorsEntry> parse_safetensors_header(ConstSpan bytes, const std::string& file);

}  // namespace tandem::model
