// Products where oneDNN packs no right side, as on machines without AVX-512: it would pack a weight in every call. By a side that
// we pack ours are the only ones, for any rows; the others stay oneDNN's.
#include "common/ops/cpu/pack_tiles.h"
#include "common/ops/cpu/pair_kernel.h"

namespace tandem::ops::detail {
namespace {

std::unique_ptr<ProductKernel> make_avx2(const Product& p) {
    const bool pairs = p.b.layout == WeightLayout::pairs;
    if (!pairs && p.b.layout != WeightLayout::packed) return onednn().make(p);
    const bool ours = p.m <= kMostPairRows && p.b.dtype == DType::float32 && !p.transpose_a &&
                      !p.accumulate && p.output == DType::float32;
    if (!ours) return nullptr;
    return std::make_unique<PairKernel>(pairs ? kWidenedProductsAvx2 : kFloatProducts, p.m, p.b,
                                        PairPlan{kAvx2Columns, kOneChain});
}

std::size_t avx2_packed_bytes(std::int64_t n, std::int64_t k, DType dtype) {
    return dtype == DType::float32 ? float_tiles_bytes(n, k, kAvx2Columns) : 0;
}

void avx2_pack(const RightSide& side, std::int64_t stride, const std::byte* from, std::byte* to) {
    pack_tiles(side, stride, kAvx2Columns, from, to);
}

}  // namespace

bool avx2_products_needed() {
    return kFloatProducts.runs_here() && onednn().packed_bytes(64, 64, DType::float32) == 0;
}

const ProductLibrary& avx2_products() {
    static const ProductLibrary library{make_avx2, avx2_packed_bytes, avx2_pack,
                                        [](std::int64_t, std::int64_t) { return kAvx2Columns; }};
    return library;
}

}  // namespace tandem::ops::detail
