#include "common/ops/cpu/row_blocks.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/error.h"
#include "common/ops/cpu/lines.h"
#include "common/tensor/dtype.h"

namespace tandem::ops::detail {
namespace {

constexpr std::int64_t kLargestBase = 16;
constexpr std::int64_t kTinyRow = 8;  // one row in so many has products that are subnormal
// The fewest outputs of a row that are compared: one alone may round alike by chance.
constexpr std::int64_t kOutputs = 64;

// Numbers whose sums round at nearly every step, so that another order shows.
class Numbers {
  public:
    // Rows of `columns` values; with `tiny`, some rows of very small ones.
    Lines matrix(std::int64_t rows, std::int64_t columns, DType dtype, bool tiny) {
        Lines result(static_cast<std::size_t>(rows * columns) * dtype_size(dtype));
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::uint32_t exponent = tiny && row % kTinyRow == kTinyRow - 1 ? 1 : 121;
            for (std::int64_t column = 0; column < columns; ++column)
                write(result.data(), row * columns + column, dtype, next(exponent));
        }
        return result;
    }

  private:
    // Any sign and mantissa, exponents over 13 steps: the bits of a float32.
    std::uint32_t next(std::uint32_t exponent) {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        const auto bits = static_cast<std::uint32_t>(state_ >> 32);
        return (bits & 0x807fffffu) | ((exponent + (bits >> 23 & 0xffu) % 13) << 23);
    }
    static void write(std::byte* to, std::int64_t index, DType dtype, std::uint32_t bits) {
        const auto high = static_cast<std::uint16_t>(bits >> 16);
        if (dtype == DType::float32) {
            std::memcpy(to + index * 4, &bits, sizeof(bits));
        } else {
            std::memcpy(to + index * 2, &high, sizeof(high));
        }
    }
    std::uint64_t state_ = 88172645463325252u;
};

// The same numbers for every kernel of a side.
struct Trial {
    Trial(const ProductLibrary& library, const RightSide& s, std::int64_t rows, Numbers& numbers)
        : side(s), a_rows(rows) {
        b = numbers.matrix(side.n, side.k, side.dtype, false);
        a = numbers.matrix(a_rows, side.k, side.dtype, true);
        if (side.layout != WeightLayout::packed) return;
        Lines packed(library.packed_bytes(side.n, side.k, side.dtype));
        library.pack({side.n, side.k, side.dtype, WeightLayout::columns}, side.k, b.data(), packed.data());
        b = std::move(packed);
    }
    // c of the rows [begin, begin + rows), in blocks of the kernel's.
    Lines run(ProductKernel& kernel, std::int64_t block, std::int64_t begin, std::int64_t rows) const {
        const std::size_t c_row = static_cast<std::size_t>(side.n) * sizeof(float);
        const std::size_t a_row = static_cast<std::size_t>(side.k) * dtype_size(side.dtype);
        Lines c(static_cast<std::size_t>(rows) * c_row);
        for (std::int64_t row = 0; row < rows; row += block)
            kernel.run(a.data() + static_cast<std::size_t>(begin + row) * a_row, b.data(),
                       c.data() + static_cast<std::size_t>(row) * c_row);
        return c;
    }
    const RightSide side;
    const std::int64_t a_rows;
    Lines a, b;
};

std::int64_t trials_of(const RightSide& side) {
    return (kOutputs + side.n - 1) / side.n;
}

// A row is not treated apart for its place: one place further up it has the same bits. (True of one row.)
bool places_agree(const Trial& trial, ProductKernel& kernel, std::int64_t rows) {
    const Lines here = trial.run(kernel, rows, 0, rows), further = trial.run(kernel, rows, 1, rows);
    const std::size_t c_row = static_cast<std::size_t>(trial.side.n) * sizeof(float);
    return std::memcmp(here.data() + c_row, further.data(), static_cast<std::size_t>(rows - 1) * c_row) == 0;
}

// TANDEM_PRODUCTS=base: blocks of the base's size alone. It changes no bit.
bool base_alone() {
    const char* value = std::getenv("TANDEM_PRODUCTS");
    return value != nullptr && std::string_view(value) == "base";
}

}  // namespace

RowBlocks::RowBlocks(const ProductLibrary& library, const RightSide& side)
    : library_(library), side_(side), base_(find_base()) {}

ProductKernel* RowBlocks::find_kernel(std::int64_t rows) const {
    return product_kernel(library_, {.m = rows,
                                     .transpose_a = false,
                                     .b = side_,
                                     .accumulate = false,
                                     .output = DType::float32,
                                     .threads = 1});
}

ProductKernel& RowBlocks::kernel(std::int64_t rows) const {
    ProductKernel* const found = find_kernel(rows);
    require(found != nullptr, "no kernel for {} rows of a product [{}, {}]", rows, side_.n, side_.k);
    return *found;
}

std::int64_t RowBlocks::find_base() const {
    for (const std::int64_t rows : kSizes) {
        ProductKernel* const candidate = rows <= kLargestBase ? find_kernel(rows) : nullptr;
        if (candidate == nullptr) continue;
        Numbers numbers;
        bool agree = true;
        for (std::int64_t i = 0; agree && i < trials_of(side_); ++i)
            agree = places_agree({library_, side_, rows + 1, numbers}, *candidate, rows);
        if (agree) return rows;
    }
    return 0;
}

bool RowBlocks::agrees(std::int64_t rows) {
    if (rows == base_) return true;
    static const bool alone = base_alone();
    if (alone) return false;
    const std::lock_guard lock(mutex_);
    const auto known = agreement_.find(rows);
    if (known != agreement_.end()) return known->second;
    return agreement_.emplace(rows, look(rows)).first->second;
}

// Every row of such a kernel, in its place, against the base's, whose rows are alike in every place.
bool RowBlocks::look(std::int64_t rows) const {
    ProductKernel* const candidate = find_kernel(rows);
    if (candidate == nullptr) return false;
    const std::int64_t compared = std::max(rows, base_);
    Numbers numbers;
    bool agree = true;
    for (std::int64_t i = 0; agree && i < trials_of(side_); ++i) {
        const Trial trial(library_, side_, compared, numbers);
        const Lines of_base = trial.run(kernel(base_), base_, 0, compared);
        const Lines of_rows = trial.run(*candidate, rows, 0, compared);
        agree = std::memcmp(of_base.data(), of_rows.data(), of_base.bytes()) == 0;
    }
    return agree;
}

std::vector<RowBlock> RowBlocks::cut(std::int64_t rows) {
    std::vector<RowBlock> result;
    std::int64_t wanted = 0, size = 0;
    for (std::int64_t begin = 0; begin < rows; begin += size) {
        const std::int64_t left = rows - begin;
        const std::int64_t best = left > 48 ? 64 : left > 8 ? 16 : left > 4 ? 8 : left > 1 ? 4 : 1;
        if (best != wanted) size = agrees(best) ? best : base_;
        wanted = best;
        result.push_back({begin, size, std::min(size, left)});
    }
    return result;
}

}  // namespace tandem::ops::detail
