// A safetensors file that is about to be written: where each tensor will lie is known before a byte of it is
// there, so that several writers can each put their rows in place.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tandem::model {

struct SafetensorsItem {
    std::string name;
    DType dtype = DType::float32;
    Shape shape;
    std::size_t bytes() const { return static_cast<std::size_t>(numel(shape)) * dtype_size(dtype); }
};

struct SafetensorsLayout {
    std::string head;                 // the file's first bytes: length and header
    std::vector<std::size_t> begins;  // of each item, from the start of the file; aligned to its element
    std::size_t bytes = 0;            // of the whole file
};

// transformers refuses files without format "pt". Throws InvalidArgument on a name that is there twice.
SafetensorsLayout safetensors_layout(const std::vector<SafetensorsItem>& items,
                                     const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace tandem::model
