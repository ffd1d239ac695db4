// Tensor shapes: a list of non-negative dims, row-major.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

using Shape = std::vector<std::int64_t>;

std::int64_t numel(const Shape& shape);     // product of dims; 1 for a scalar
std::string to_string(const Shape& shape);  // "[2, 3]"

}  // namespace tandem
