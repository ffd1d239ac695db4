// oneDNN's products with ours for up to 64 rows, wherever trials show that both have the same bits. Where oneDNN packs nothing,
// as on machines without AVX-512, ours are the products of packed sides.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "common/align.h"
#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/pack_tiles.h"
#include "common/ops/cpu/pair_products.h"
#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {
namespace {

constexpr std::int64_t kTrialRows = 16;
constexpr int kOneChain = 1 << 30;  // of any k

// How to multiply by a side in pairs as oneDNN does by it packed.
struct PairPlan {
    std::int64_t columns = 0;  // of a block; 0: ours are not used
    std::int64_t chain = 0;
};

const PairProducts& products_of(DType dtype) {
    return dtype == DType::bfloat16 ? kPairProducts : kWidenedProducts;
}

class PairKernel : public ProductKernel {
  public:
    PairKernel(const PairProducts& products, std::int64_t rows, const RightSide& side, const PairPlan& plan)
        : products_(products), rows_(rows), side_(side), plan_(plan) {}
    void run(const std::byte* a, const std::byte* b, std::byte* c) override {
        run_to(rows_, a, b, {c, side_.n, DType::float32, nullptr});
    }
    bool run_to(std::int64_t rows, const std::byte* a, const std::byte* b, const Destination& to) override {
        const bool wide = to.dtype == DType::float32;
        products_.multiply({.rows = rows,
                            .n = side_.n,
                            .k = side_.k,
                            .columns = plan_.columns,
                            .chain = plan_.chain,
                            .a = a,
                            .b = b,
                            .bias = to.bias,
                            .c = wide ? reinterpret_cast<float*>(to.c) : nullptr,
                            .rounded_c = wide ? nullptr : reinterpret_cast<std::uint16_t*>(to.c),
                            .c_row = to.stride,
                            .next = reinterpret_cast<const char*>(to.next)});
        return true;
    }

  private:
    const PairProducts& products_;
    const std::int64_t rows_;
    const RightSide side_;
    const PairPlan plan_;
};

// bfloat16 of both signs whose sums round at nearly every step, in a dtype that holds them.
Lines trial_numbers(std::int64_t count, DType dtype) {
    std::minstd_rand generator(1);
    Lines result(static_cast<std::size_t>(count) * dtype_size(dtype));
    for (std::int64_t i = 0; i < count; ++i) {
        const auto bits = static_cast<std::uint32_t>(generator());
        const std::uint32_t number = (bits >> 8 & 0x807f) | (121 + bits % 13) << 7, wide = number << 16;
        const auto narrow = static_cast<std::uint16_t>(number);
        if (dtype == DType::float32) {
            std::memcpy(result.data() + i * 4, &wide, sizeof(wide));
        } else {
            std::memcpy(result.data() + i * 2, &narrow, sizeof(narrow));
        }
    }
    return result;
}

Lines outputs(std::int64_t n) {
    return Lines(static_cast<std::size_t>(kTrialRows * n) * sizeof(float));
}

// What oneDNN makes of the trial's numbers; nothing where it has no kernel.
Lines wanted_outputs(const RightSide& side) {
    const RightSide packed_side{side.n, side.k, side.dtype, WeightLayout::packed};
    ProductKernel* const library =
        product_kernel(onednn(), {kTrialRows, false, packed_side, false, DType::float32, 1});
    if (library == nullptr) return {};
    const Lines a = trial_numbers(kTrialRows * side.k, side.dtype),
                b = trial_numbers(side.n * side.k, side.dtype);
    Lines packed(onednn().packed_bytes(side.n, side.k, side.dtype)), result = outputs(side.n);
    onednn().pack({side.n, side.k, side.dtype, WeightLayout::columns}, side.k, b.data(), packed.data());
    library->run(a.data(), packed.data(), result.data());
    return result;
}

// The chain by which ours have the bits of oneDNN's.
PairPlan find_plan(const RightSide& side) {
    const std::int64_t columns = onednn_tile_columns(side.n, side.k, side.dtype);
    if (columns == 0 || columns > kMostPairColumns) return {};
    const Lines wanted = wanted_outputs(side);
    if (wanted.bytes() == 0) return {};
    const Lines a = trial_numbers(kTrialRows * side.k, side.dtype),
                b = trial_numbers(side.n * side.k, DType::bfloat16);
    Lines pairs(pair_tiles_bytes(side.n, side.k, columns));
    pack_tiles({side.n, side.k, DType::bfloat16, WeightLayout::columns}, side.k, columns, b.data(),
               pairs.data());
    for (const std::int64_t chain : {512, 1024, 2048, kOneChain}) {
        const PairPlan plan{columns, chain};
        Lines got = outputs(side.n);
        PairKernel(products_of(side.dtype), kTrialRows, side, plan).run(a.data(), pairs.data(), got.data());
        if (std::memcmp(got.data(), wanted.data(), got.bytes()) == 0) return plan;
    }
    return {};
}

PairPlan plan_of(const RightSide& side) {
    static std::mutex mutex;
    static std::map<RightSide, PairPlan> plans;
    const std::lock_guard lock(mutex);
    const auto found = plans.find(side);
    return found != plans.end() ? found->second : plans.emplace(side, find_plan(side)).first->second;
}

// Whether oneDNN packs no float32 here, and our kernels for AVX2 run.
bool packs_alone() {
    static const bool alone =
        kFloatProducts.runs_here() && onednn().packed_bytes(64, 64, DType::float32) == 0;
    return alone;
}

std::unique_ptr<ProductKernel> make_alone(const Product& p) {
    const bool pairs = p.b.layout == WeightLayout::pairs;
    if (!pairs && p.b.layout != WeightLayout::packed) return onednn().make(p);
    const bool ours = p.m <= kMostPairRows && p.b.dtype == DType::float32 && !p.transpose_a &&
                      !p.accumulate && p.output == DType::float32;
    if (!ours) return nullptr;
    return std::make_unique<PairKernel>(pairs ? kWidenedProductsAvx2 : kFloatProducts, p.m, p.b,
                                        PairPlan{kAvx2Columns, kOneChain});
}

std::unique_ptr<ProductKernel> make_here(const Product& p) {
    if (packs_alone()) return make_alone(p);
    const WeightLayout pairs = p.b.dtype == DType::bfloat16 ? WeightLayout::packed : WeightLayout::pairs;
    const bool ours = p.m <= kMostPairRows && p.b.layout == pairs && !p.transpose_a && !p.accumulate &&
                      p.output == DType::float32 && products_of(p.b.dtype).runs_here();
    const PairPlan plan = ours ? plan_of(p.b) : PairPlan();
    if (plan.columns == 0) return onednn().make(p);
    return std::make_unique<PairKernel>(products_of(p.b.dtype), p.m, p.b, plan);
}

std::size_t packed_bytes_here(std::int64_t n, std::int64_t k, DType dtype) {
    if (!packs_alone()) return onednn().packed_bytes(n, k, dtype);
    return dtype == DType::float32 ? float_tiles_bytes(n, k, kAvx2Columns) : 0;
}

void pack_here(const RightSide& side, std::int64_t stride, const std::byte* from, std::byte* to) {
    packs_alone() ? pack_tiles(side, stride, kAvx2Columns, from, to) : onednn().pack(side, stride, from, to);
}

std::int64_t tile_columns_here(std::int64_t n, std::int64_t k) {
    return packs_alone() ? kAvx2Columns : onednn_tile_columns(n, k, DType::float32);
}

}  // namespace

const ProductLibrary& machine_products() {
    static const ProductLibrary library{make_here, packed_bytes_here, pack_here, tile_columns_here};
    return library;
}

}  // namespace tandem::ops::detail
