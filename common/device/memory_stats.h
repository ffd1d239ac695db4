// Bookkeeping behind memory_stats: used by the owners of memory in this folder only.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::detail {

int memory_tag(std::string_view name);  // index of the tag, created on first use
void count_allocation(int tag, std::size_t bytes) noexcept;
void count_release(int tag, std::size_t bytes) noexcept;

}  // namespace tandem::detail
