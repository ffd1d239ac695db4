#include "common/ops/cpu/product.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/product_plan.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops::detail {
namespace {

std::size_t bytes_of(std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * dtype_size(dtype);
}

// A thread's memory between its products.
struct Scratch {
    Lines chunk, sums, wide, bias;
    Lines padded, padded_last;  // of the thread that shares the pieces out
};

Scratch& scratch() {
    thread_local Scratch instance;
    return instance;
}

// The blocks of all rows for the chunks of one width, and the last block's rows of a, padded with zero rows.
struct RowCut {
    RowCut(RowBlocks& row_blocks, const PlainProduct& p, Lines& room)
        : sizes(row_blocks), blocks(row_blocks.cut(p.m)) {
        const RowBlock& end = blocks.back();
        if (end.used == end.rows) return;
        const std::size_t all = bytes_of(end.rows * p.k, p.input), used = bytes_of(end.used * p.k, p.input);
        room.reserve(all);
        std::memcpy(room.data(), p.a + bytes_of(end.begin * p.k, p.input), used);
        std::memset(room.data() + used, 0, all - used);
        padded = room.data();
    }
    const std::byte* a(const RowBlock& block, const PlainProduct& p) const {
        return block.used < block.rows ? padded : p.a + bytes_of(block.begin * p.k, p.input);
    }
    RowBlocks& sizes;
    std::vector<RowBlock> blocks;
    const std::byte* padded = nullptr;
};

TANDEM_CLONES void add_into(float* sums, const float* more, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] += more[i];
}

// Columns [first, first + count) of one row of c, from the sums of its products.
void finish(const PlainProduct& p, std::int64_t row, std::int64_t first, std::int64_t count, float* sums,
            const float* bias, float* wide) {
    if (bias != nullptr) add_into(sums, bias, count);
    std::byte* const to = p.c + bytes_of(row * p.n + first, p.output);
    if (p.output == DType::float32) {
        auto* const c = reinterpret_cast<float*>(to);
        if (p.accumulate) {
            add_into(c, sums, count);
        } else {
            std::memcpy(c, sums, bytes_of(count, DType::float32));
        }
        return;
    }
    auto* const c = reinterpret_cast<bfloat16*>(to);
    if (p.accumulate) {
        widen(c, wide, count);
        add_into(sums, wide, count);
    }
    narrow(sums, c, count);
}

// The chunk's columns of the bias in float32; null without one.
const float* bias_of(const PlainProduct& p, std::int64_t first, std::int64_t count) {
    if (p.bias == nullptr) return nullptr;
    const std::byte* const from = p.bias + bytes_of(first, p.input);
    if (p.input == DType::float32) return reinterpret_cast<const float*>(from);
    scratch().bias.reserve(bytes_of(count, DType::float32));
    auto* const to = reinterpret_cast<float*>(scratch().bias.data());
    widen(reinterpret_cast<const bfloat16*>(from), to, count);
    return to;
}

const std::byte* right_side(const ProductLibrary& library, const ProductPlan& plan, const PlainProduct& p,
                            std::int64_t chunk) {
    if (plan.packed_bytes == 0) return p.b + plan.offset(chunk);
    if (p.packed != nullptr) return p.packed + static_cast<std::size_t>(chunk) * plan.packed_bytes;
    scratch().chunk.reserve(plan.packed_bytes);
    plan.pack(library, chunk, p.b, scratch().chunk.data());
    return scratch().chunk.data();
}

// One chunk of columns, some blocks of rows.
void run_piece(const ProductLibrary& library, const ProductPlan& plan, const PlainProduct& p,
               const RowCut& cut, std::int64_t chunk, std::size_t first_block, std::size_t end_block) {
    const std::int64_t first = plan.begin(chunk), count = plan.columns(chunk);
    const std::byte* const b = right_side(library, plan, p, chunk);
    const float* const bias = bias_of(p, first, count);
    Scratch& own = scratch();
    own.sums.reserve(bytes_of(RowBlocks::kSizes.front() * count, DType::float32));
    own.wide.reserve(bytes_of(count, DType::float32));
    auto* const sums = reinterpret_cast<float*>(own.sums.data());
    auto* const wide = reinterpret_cast<float*>(own.wide.data());
    const bool in_place = count == p.n && p.output == DType::float32 && !p.accumulate && bias == nullptr;
    ProductKernel* kernel = nullptr;
    for (std::size_t i = first_block; i < end_block; ++i) {
        const RowBlock& block = cut.blocks[i];
        if (i == first_block || block.rows != cut.blocks[i - 1].rows) kernel = &cut.sizes.kernel(block.rows);
        if (in_place && block.used == block.rows) {
            kernel->run(cut.a(block, p), b, p.c + bytes_of(block.begin * p.n, p.output));
            continue;
        }
        kernel->run(cut.a(block, p), b, own.sums.data());
        for (std::int64_t row = 0; row < block.used; ++row)
            finish(p, block.begin + row, first, count, sums + row * count, bias, wide);
    }
}

// The number of groups of row blocks. Each packs its chunk again, so there are several only if threads would
// idle.
std::int64_t row_groups(const ProductPlan& plan, std::int64_t blocks, int threads) {
    if (plan.chunks % threads == 0 || plan.chunks >= 4 * threads) return 1;
    return std::min<std::int64_t>(blocks, threads);
}

}  // namespace

bool multiply(const ProductLibrary& library, const PlainProduct& p) {
    const ProductPlan& plan = product_plan(library, p.n, p.k, p.input, p.layout);
    if (!plan.supported()) return false;
    const RowCut whole(*plan.whole, p, scratch().padded);
    std::optional<RowCut> last;
    if (plan.last) last.emplace(*plan.last, p, scratch().padded_last);
    const auto most_blocks =
        static_cast<std::int64_t>(std::max(whole.blocks.size(), last ? last->blocks.size() : 0));
    const std::int64_t groups = row_groups(plan, most_blocks, p.threads);
    parallel_for(plan.chunks * groups, p.threads, [&](std::int64_t item) {
        const std::int64_t chunk = item / groups;
        const RowCut& cut = last && chunk + 1 == plan.chunks ? *last : whole;
        const auto part = [&](std::int64_t group) {
            return cut.blocks.size() * static_cast<std::size_t>(group) / static_cast<std::size_t>(groups);
        };
        const std::int64_t group = item % groups;
        run_piece(library, plan, p, cut, chunk, part(group), part(group + 1));
    });
    return true;
}

std::size_t packed_columns_bytes(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype) {
    const ProductPlan& plan = product_plan(library, n, k, dtype, WeightLayout::columns);
    return plan.supported() ? plan.packed_bytes * static_cast<std::size_t>(plan.chunks) : 0;
}

void pack_columns(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype,
                  const std::byte* from, std::byte* to) {
    const ProductPlan& plan = product_plan(library, n, k, dtype, WeightLayout::columns);
    parallel_for(plan.chunks, compute_threads(), [&](std::int64_t chunk) {
        plan.pack(library, chunk, from, to + static_cast<std::size_t>(chunk) * plan.packed_bytes);
    });
}

}  // namespace tandem::ops::detail
