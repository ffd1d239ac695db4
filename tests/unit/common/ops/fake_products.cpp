#include "tests/unit/common/ops/fake_products.h"

#include <algorithm>
#include <cstring>

#include "common/align.h"
#include "common/ops/cpu/pack_tiles.h"

namespace tandem::testing {
namespace {

using namespace ops::detail;

float value(const std::byte* data, std::int64_t index, DType dtype) {
    if (dtype == DType::float32) return reinterpret_cast<const float*>(data)[index];
    return float(reinterpret_cast<const bfloat16*>(data)[index]);
}

// In how many parts the sum over k of this row is made. Other parts, other bits.
using Parts = std::int64_t (*)(const Product& product, std::int64_t row);

class Kernel : public ProductKernel {
  public:
    Kernel(const Product& product, Parts parts) : p_(product), parts_(parts) {}
    void run(const std::byte* a, const std::byte* b, std::byte* c) override {
        for (std::int64_t row = 0; row < p_.m; ++row) {
            const std::int64_t parts = parts_(p_, row);
            for (std::int64_t column = 0; column < p_.b.n; ++column) {
                float total = 0;
                for (std::int64_t part = 0; part < parts; ++part)
                    total += sum(a, b, row, column, p_.b.k * part / parts, p_.b.k * (part + 1) / parts);
                reinterpret_cast<float*>(c)[row * p_.b.n + column] = total;
            }
        }
    }

  private:
    float sum(const std::byte* a, const std::byte* b, std::int64_t row, std::int64_t column,
              std::int64_t begin, std::int64_t end) const {
        float result = 0;
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t at =
                p_.b.layout == WeightLayout::columns ? column * p_.b.k + i : i * p_.b.n + column;
            result += value(a, row * p_.b.k + i, p_.b.dtype) * value(b, at, p_.b.dtype);
        }
        return result;
    }
    const Product p_;
    const Parts parts_;
};

template <Parts parts>
std::unique_ptr<ProductKernel> make(const Product& product) {
    return std::make_unique<Kernel>(product, parts);
}

// The packed layout is [k, n].
std::size_t packed_bytes(std::int64_t n, std::int64_t k, DType dtype) {
    return static_cast<std::size_t>(n * k) * dtype_size(dtype);
}

std::size_t nothing_packed(std::int64_t, std::int64_t, DType) {
    return 0;
}

void pack(const RightSide& side, std::int64_t stride, const std::byte* from, std::byte* to) {
    const std::size_t each = dtype_size(side.dtype);
    for (std::int64_t k = 0; k < side.k; ++k) {
        for (std::int64_t n = 0; n < side.n; ++n) {
            const auto at = side.layout == WeightLayout::columns ? n * stride + k : k * stride + n;
            std::memcpy(to + static_cast<std::size_t>(k * side.n + n) * each,
                        from + static_cast<std::size_t>(at) * each, each);
        }
    }
}

std::int64_t one_or_two(bool two) {
    return two ? 2 : 1;
}
std::int64_t alike(const Product&, std::int64_t) {
    return 1;
}
std::int64_t small(const Product& p, std::int64_t) {
    return one_or_two(p.m * p.b.n <= 256);
}
std::int64_t deep(const Product& p, std::int64_t) {
    return one_or_two(p.b.k > 64 && p.m > 16);
}
std::int64_t packed(const Product& p, std::int64_t) {
    return one_or_two(p.b.layout == WeightLayout::packed);
}
std::int64_t one_row(const Product& p, std::int64_t) {
    return one_or_two(p.m == 1);
}
std::int64_t threads(const Product& p, std::int64_t) {
    return p.threads;
}
std::int64_t past_24s(const Product& p, std::int64_t row) {
    return one_or_two(row >= p.m / 24 * 24);
}
std::int64_t past_threes(const Product& p, std::int64_t row) {
    return one_or_two(row >= p.m / 3 * 3);
}
std::int64_t first_row(const Product& p, std::int64_t row) {
    return one_or_two(row == 0 && p.m > 1);
}

std::unique_ptr<ProductKernel> make_but_64(const Product& product) {
    return product.m == 64 ? nullptr : make<alike>(product);
}

// As oneDNN on a machine without bfloat16's instructions.
std::unique_ptr<ProductKernel> make_float32(const Product& product) {
    return product.b.dtype == DType::float32 ? make<alike>(product) : nullptr;
}
std::size_t float32_packed_bytes(std::int64_t n, std::int64_t k, DType dtype) {
    return dtype == DType::float32 ? packed_bytes(n, k, dtype) : 0;
}

// Packed as oneDNN packs, and kept in pairs.
constexpr std::int64_t kBlock = 16;  // columns

class TileKernel : public ProductKernel {
  public:
    explicit TileKernel(const Product& product) : p_(product) {}
    void run(const std::byte* a, const std::byte* b, std::byte* c) override {
        run_to(p_.m, a, b, {c, p_.b.n, DType::float32, nullptr});
    }
    bool run_to(std::int64_t rows, const std::byte* a, const std::byte* b, const Destination& to) override {
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t column = 0; column < p_.b.n; ++column) {
                float total = 0;
                for (std::int64_t k = 0; k < p_.b.k; ++k)
                    total += value(a, row * p_.b.k + k, DType::float32) * right(b, k, column);
                if (to.bias != nullptr) total += to.bias[column];
                const std::int64_t at = row * to.stride + column;
                if (to.dtype == DType::float32) {
                    reinterpret_cast<float*>(to.c)[at] = total;
                } else {
                    reinterpret_cast<bfloat16*>(to.c)[at] = bfloat16(total);
                }
            }
        }
        return true;
    }

  private:
    float right(const std::byte* b, std::int64_t k, std::int64_t column) const {
        const std::int64_t block = column / kBlock * kBlock, within = column % kBlock;
        if (p_.b.layout == WeightLayout::packed)
            return value(b, block * round_up(p_.b.k, 16) + k * kBlock + within, DType::float32);
        return value(b, block * round_up(p_.b.k, 32) + k / 2 * 2 * kBlock + within * 2 + k % 2,
                     DType::bfloat16);
    }
    const Product p_;
};

std::unique_ptr<ProductKernel> make_tiles(const Product& product) {
    if (product.b.dtype != DType::float32) return nullptr;
    if (product.b.layout == WeightLayout::rows || product.b.layout == WeightLayout::columns)
        return make<alike>(product);
    return std::make_unique<TileKernel>(product);
}
std::size_t tiles_bytes(std::int64_t n, std::int64_t k, DType dtype) {
    return dtype == DType::float32 ? static_cast<std::size_t>(round_up(n, kBlock) * round_up(k, 16)) * 4 : 0;
}
void pack_into_tiles(const RightSide& side, std::int64_t stride, const std::byte* from, std::byte* to) {
    pack_tiles(side, stride, kBlock, from, to);
}
std::int64_t tile_columns(std::int64_t, std::int64_t) {
    return kBlock;
}

template <Parts parts>
constexpr ProductLibrary packing{make<parts>, packed_bytes, pack};

}  // namespace

const std::vector<FakeProducts>& fake_products() {
    static const std::vector<FakeProducts> all = {
        {"every row alike", packing<alike>, true, 16, {64, 16, 8, 4, 1}},
        {"small products in another order", packing<small>, false, 16, {64, 16}},
        {"a long k is split for many rows", packing<deep>, false, 16, {16, 8, 4, 1}},
        {"a packed side in another order", packing<packed>, false, 16, {64, 16, 8, 4, 1}},
        {"one row in another order", packing<one_row>, false, 16, {64, 16, 8, 4}},
        {"k is split over threads", packing<threads>, false, 16, {64, 16, 8, 4, 1}},
        {"rows past the 24s apart", packing<past_24s>, false, 16, {16, 8, 4, 1}},
        {"rows past the threes apart", packing<past_threes>, false, 1, {1}},
        {"the first row apart", packing<first_row>, false, 1, {1}},
        {"nothing is packed, rows past the threes apart",
         {make<past_threes>, nothing_packed, pack},
         false,
         1,
         {1}},
        {"nothing is packed, small ones in another order",
         {make<small>, nothing_packed, pack},
         false,
         16,
         {64, 16}},
        {"no kernel of 64 rows", {make_but_64, packed_bytes, pack}, true, 16, {16, 8, 4, 1}},
        {"float32 alone, packed",
         {make_float32, float32_packed_bytes, pack},
         true,
         16,
         {64, 16, 8, 4, 1},
         false},
        {"float32 alone, nothing packed",
         {make_float32, nothing_packed, pack},
         true,
         16,
         {64, 16, 8, 4, 1},
         false},
        {"float32 alone, kept in pairs",
         {make_tiles, tiles_bytes, pack_into_tiles, tile_columns},
         true,
         16,
         {64, 16, 8, 4, 1},
         false},
    };
    return all;
}

}  // namespace tandem::testing
