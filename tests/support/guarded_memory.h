// Memory that ends, up to its alignment of 16 bytes, where a page begins that nobody may touch.
#pragma once

#include <cstddef>

#include "common/device/memory.h"

namespace tandem::tests {

std::byte* guarded_allocate(std::size_t bytes);  // filled with 0xff: NaNs
std::size_t guarded_bytes(std::byte* memory);    // up to its end
void guarded_free(std::byte* memory) noexcept;
MemoryPool& guarded_pool();

}  // namespace tandem::tests
