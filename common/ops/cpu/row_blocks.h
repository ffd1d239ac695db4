// Blocks of rows whose kernels give a row the same bits beside any other rows.
//
// A library may sum in an order of its own for every number of rows. A kernel made for a fixed number of rows
// has one order, if each of its rows has the same: the base is such a kernel, of 16 rows where the library
// allows. Kernels of other sizes are faster for many rows or for few; they are used where they give the
// base's bits. Both are checked, not assumed: at the first use of a size for a right-hand side its kernel and
// the base multiply the same numbers (a millisecond), and every bit is compared. So the results do not depend
// on which sizes are used, and processes need not agree on them.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {

struct RowBlock {
    std::int64_t begin;
    std::int64_t rows;  // of the kernel
    std::int64_t used;  // of those, from the first: fewer in a last block, which is padded with zero rows
};

// For one library and one right-hand side. Thread-safe.
class RowBlocks {
  public:
    static constexpr std::array<std::int64_t, 5> kSizes = {64, 16, 8, 4, 1};

    RowBlocks(const ProductLibrary& library, const RightSide& side);

    std::int64_t base() const { return base_; }  // rows; 0: the library has no kernel for this side
    // Whether the kernel of so many rows, one of kSizes, gives the base's bits.
    bool agrees(std::int64_t rows);
    // All rows, in order.
    std::vector<RowBlock> cut(std::int64_t rows);
    ProductKernel& kernel(std::int64_t rows) const;  // this thread's

  private:
    ProductKernel* find_kernel(std::int64_t rows) const;
    std::int64_t find_base() const;
    bool look(std::int64_t rows) const;

    const ProductLibrary& library_;
    const RightSide side_;
    std::mutex mutex_;
    std::map<std::int64_t, bool> agreement_;
    const std::int64_t base_;
};

}  // namespace tandem::ops::detail
