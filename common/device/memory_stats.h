// Bookkeeping behind memory_stats: used by the owners of memory in this folder only.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tandem::detail {

int memory_tag(std::string_view name);  // index of the tag, created on first use
void count_allocation(int tag, std::size_t bytes) noexcept;
void count_release(int tag, std::size_t bytes) noexcept;

// While one lives, what its thread allocates and releases is counted apart from the process's, from zero. Tags that
// memory_tag() gave out before mean nothing there.
class SeparateStatistics {
  public:
    SeparateStatistics();
    ~SeparateStatistics();
    SeparateStatistics(const SeparateStatistics&) = delete;
    SeparateStatistics& operator=(const SeparateStatistics&) = delete;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::detail
