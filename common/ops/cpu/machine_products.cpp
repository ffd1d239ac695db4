// oneDNN's products with ours for up to 64 rows, wherever trials show that both have the same bits.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/pack_tiles.h"
#include "common/ops/cpu/pair_kernel.h"
#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {
namespace {

constexpr std::int64_t kTrialRows = 16;

const PairProducts& products_of(DType dtype) {
    return dtype == DType::bfloat16 ? kPairProducts : kWidenedProducts;
}

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

std::unique_ptr<ProductKernel> make_beside_onednn(const Product& p) {
    const WeightLayout pairs = p.b.dtype == DType::bfloat16 ? WeightLayout::packed : WeightLayout::pairs;
    const bool ours = p.m <= kMostPairRows && p.b.layout == pairs && !p.transpose_a && !p.accumulate &&
                      p.output == DType::float32 && products_of(p.b.dtype).runs_here();
    const PairPlan plan = ours ? plan_of(p.b) : PairPlan();
    if (plan.columns == 0) return onednn().make(p);
    return std::make_unique<PairKernel>(products_of(p.b.dtype), p.m, p.b, plan);
}

std::int64_t float_tile_columns(std::int64_t n, std::int64_t k) {
    return onednn_tile_columns(n, k, DType::float32);
}

}  // namespace

const ProductLibrary& machine_products() {
    static const ProductLibrary beside_onednn{make_beside_onednn, onednn().packed_bytes, onednn().pack,
                                              float_tile_columns};
    static const bool alone = avx2_products_needed();
    return alone ? avx2_products() : beside_onednn;
}

}  // namespace tandem::ops::detail
