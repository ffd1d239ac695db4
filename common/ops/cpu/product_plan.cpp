#include "common/ops/cpu/product_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/align.h"
#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/pack_tiles.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops::detail {
namespace {

constexpr std::int64_t kChunkBytes = 1 << 20;  // of b: it stays in a core's cache while rows pass
constexpr std::int64_t kMostColumns = 1024;    // or a block of c would not fit beside it
constexpr std::int64_t kColumns = 64;          // a chunk is a multiple of: what the kernels take at a time
constexpr std::int64_t kFewestChunks = 2;      // of more columns than that: a thread each

// Chunks of one width, and what is left of n: narrow, where it cannot be nothing, so that few threads have
// about the same to do.
std::int64_t chunk_width(std::int64_t n, std::int64_t k, DType dtype) {
    const std::int64_t fit = kChunkBytes / (k * static_cast<std::int64_t>(dtype_size(dtype)));
    const std::int64_t most = std::clamp(fit, kColumns, kMostColumns) / kColumns;
    const std::int64_t units = (n + kColumns - 1) / kColumns;
    const std::int64_t count = std::max((units + most - 1) / most, std::min(units, kFewestChunks));
    return std::min(n, units / count * kColumns);
}

// Keeps what is packed in pairs, if all of it can be multiplied so.
void find_pairs(const ProductLibrary& library, ProductPlan& plan) {
    const auto columns_of_block = [&](std::int64_t chunk) {
        const std::int64_t columns = plan.columns(chunk);
        return plan.pair_kernel(library, columns) == nullptr ? 0 : library.tile_columns(columns, plan.k);
    };
    const std::int64_t whole = columns_of_block(0), last = columns_of_block(plan.chunks - 1);
    if (whole == 0 || last == 0) return;
    plan.whole_pair_columns = whole;
    plan.last_pair_columns = last;
    plan.kept_bytes = round_up(std::max(pair_tiles_bytes(plan.width, plan.k, whole),
                                        pair_tiles_bytes(plan.columns(plan.chunks - 1), plan.k, last)),
                               64);
}

ProductPlan make_plan(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype,
                      DType stored, WeightLayout layout) {
    ProductPlan plan{.n = n, .k = k, .dtype = dtype, .stored = stored, .layout = layout};
    plan.width = chunk_width(n, k, dtype);
    const auto last_width = [&] { return n - (n - 1) / plan.width * plan.width; };
    const std::size_t packed = library.packed_bytes(plan.width, k, dtype),
                      packed_last = library.packed_bytes(last_width(), k, dtype);
    plan.packs = packed > 0 && packed_last > 0;
    // Chunks of [k, n] would not be contiguous where they lie.
    if (!plan.packs && !plan.widens() && layout == WeightLayout::rows) plan.width = n;
    if (plan.packs) plan.packed_bytes = round_up(std::max(packed, packed_last), 64);
    if (!plan.packs && plan.widens())
        plan.packed_bytes = round_up(static_cast<std::size_t>(plan.width * k) * dtype_size(dtype), 64);
    plan.chunks = (n + plan.width - 1) / plan.width;
    const WeightLayout used = plan.packs ? WeightLayout::packed : layout;
    plan.whole = std::make_unique<RowBlocks>(library, RightSide{plan.width, k, dtype, used});
    if (last_width() != plan.width)
        plan.last = std::make_unique<RowBlocks>(library, RightSide{last_width(), k, dtype, used});
    plan.kept_bytes = plan.packed_bytes;
    if (plan.packs && plan.widens()) find_pairs(library, plan);
    return plan;
}

// The chunk alone, laid out as b is.
void widen_chunk(const ProductPlan& plan, std::int64_t chunk, const std::byte* b, float* to) {
    const auto* from = reinterpret_cast<const bfloat16*>(b + plan.offset(chunk));
    const std::int64_t columns = plan.columns(chunk);
    if (plan.layout == WeightLayout::columns) return widen(from, to, columns * plan.k);
    for (std::int64_t row = 0; row < plan.k; ++row) widen(from + row * plan.n, to + row * columns, columns);
}

}  // namespace

std::size_t ProductPlan::offset(std::int64_t chunk) const {
    const std::int64_t elements = begin(chunk) * (layout == WeightLayout::columns ? k : 1);
    return static_cast<std::size_t>(elements) * dtype_size(stored);
}

void ProductPlan::pack(const ProductLibrary& library, std::int64_t chunk, const std::byte* b,
                       std::byte* to) const {
    const RightSide side{columns(chunk), k, dtype, layout};
    const std::int64_t stride = layout == WeightLayout::columns ? k : n;
    if (!widens()) return library.pack(side, stride, b + offset(chunk), to);
    if (!packs) return widen_chunk(*this, chunk, b, reinterpret_cast<float*>(to));
    thread_local Lines between;
    if (keeps_pairs()) {  // half of what is moved about
        between.reserve(kept_bytes);
        keep(library, chunk, b, between.data());
        return pack_kept(chunk, between.data(), to);
    }
    between.reserve(static_cast<std::size_t>(side.n * k) * sizeof(float));
    widen_chunk(*this, chunk, b, reinterpret_cast<float*>(between.data()));
    library.pack(side, layout == WeightLayout::columns ? k : side.n, between.data(), to);
}

void ProductPlan::keep(const ProductLibrary& library, std::int64_t chunk, const std::byte* b,
                       std::byte* to) const {
    if (!keeps_pairs()) return pack(library, chunk, b, to);
    pack_tiles({columns(chunk), k, stored, layout}, layout == WeightLayout::columns ? k : n,
               pair_columns(chunk), b + offset(chunk), to);
}

void ProductPlan::pack_kept(std::int64_t chunk, const std::byte* kept, std::byte* to) const {
    widen_tiles(columns(chunk), k, pair_columns(chunk), kept, reinterpret_cast<float*>(to));
}

ProductKernel* ProductPlan::pair_kernel(const ProductLibrary& library, std::int64_t columns) const {
    return product_kernel(library, {.m = kFewRows,
                                    .transpose_a = false,
                                    .b = {columns, k, dtype, WeightLayout::pairs},
                                    .accumulate = false,
                                    .output = DType::float32,
                                    .threads = 1});
}

const ProductPlan& product_plan(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype,
                                WeightLayout layout) {
    static std::mutex mutex;
    static std::map<std::tuple<const ProductLibrary*, std::int64_t, std::int64_t, DType, WeightLayout>,
                    ProductPlan>
        plans;
    const std::lock_guard lock(mutex);
    const std::tuple key(&library, n, k, dtype, layout);
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    ProductPlan plan = make_plan(library, n, k, dtype, dtype, layout);
    if (dtype == DType::bfloat16 && !plan.supported())
        plan = make_plan(library, n, k, DType::float32, dtype, layout);
    return plans.emplace(key, std::move(plan)).first->second;
}

}  // namespace tandem::ops::detail
