#include "common/ops/cpu/product.h"

#include <algorithm>
#include <cstring>
#include <utility>
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

// Kept between a thread's products.
struct ThreadMemory {
    Lines chunk, sums, wide, bias, padded, left;
};

ThreadMemory& scratch() {
    thread_local ThreadMemory instance;
    return instance;
}

// Some rows of one chunk of a product's columns.
struct Piece {
    const PlainProduct* product;
    const ProductPlan* plan;
    const std::byte* a;  // all rows, of the plan's dtype
    std::int64_t chunk, first_row, rows;

    std::int64_t work_per_row() const { return plan->columns(chunk) * plan->k; }
    // The chunk of the PackedWeight; null without one.
    const std::byte* kept() const {
        return product->packed == nullptr
                   ? nullptr
                   : product->packed + static_cast<std::size_t>(chunk) * plan->kept_bytes;
    }
};

// The block's rows of a; a last block is padded with zero rows in the thread's memory.
const std::byte* left_side(const Piece& piece, const RowBlock& block) {
    const std::int64_t k = piece.plan->k;
    const DType dtype = piece.plan->dtype;
    const std::byte* const from = piece.a + bytes_of((piece.first_row + block.begin) * k, dtype);
    if (block.used == block.rows) return from;
    const std::size_t all = bytes_of(block.rows * k, dtype), used = bytes_of(block.used * k, dtype);
    Lines& room = scratch().padded;
    room.reserve(all);
    std::memcpy(room.data(), from, used);
    std::memset(room.data() + used, 0, all - used);
    return room.data();
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

const std::byte* right_side(const ProductLibrary& library, const Piece& piece) {
    const ProductPlan& plan = *piece.plan;
    const PlainProduct& p = *piece.product;
    const std::int64_t chunk = piece.chunk;
    if (plan.packed_bytes == 0) return p.b + plan.offset(chunk);
    if (piece.kept() != nullptr && !plan.keeps_pairs()) return piece.kept();
    scratch().chunk.reserve(plan.packed_bytes);
    if (piece.kept() != nullptr) {
        plan.pack_kept(chunk, piece.kept(), scratch().chunk.data());
    } else {
        plan.pack(library, chunk, p.b, scratch().chunk.data());
    }
    return scratch().chunk.data();
}

// By the chunk as it is kept. False, with nothing done, where it must be packed first.
bool run_pairs(const ProductLibrary& library, const Piece& piece, const Piece* next) {
    const PlainProduct& p = *piece.product;
    const ProductPlan& plan = *piece.plan;
    if (!plan.keeps_pairs() || piece.kept() == nullptr || piece.rows > ProductPlan::kFewRows || p.accumulate)
        return false;
    const std::int64_t first = plan.begin(piece.chunk), count = plan.columns(piece.chunk);
    const Destination to{p.c + bytes_of(piece.first_row * p.n + first, p.output), p.n, p.output,
                         bias_of(p, first, count), next != nullptr ? next->kept() : nullptr};
    return plan.pair_kernel(library, count)
        ->run_to(piece.rows, piece.a + bytes_of(piece.first_row * p.k, plan.dtype), piece.kept(), to);
}

// `next`: a piece that this thread may do next, or null.
void run_piece(const ProductLibrary& library, const Piece& piece, const Piece* next) {
    if (run_pairs(library, piece, next)) return;
    const PlainProduct& p = *piece.product;
    const ProductPlan& plan = *piece.plan;
    const std::int64_t first = plan.begin(piece.chunk), count = plan.columns(piece.chunk);
    RowBlocks& row_blocks = plan.blocks(piece.chunk);
    const std::byte* const b = right_side(library, piece);
    const float* const bias = bias_of(p, first, count);
    ThreadMemory& own = scratch();
    own.sums.reserve(bytes_of(RowBlocks::kSizes.front() * count, DType::float32));
    own.wide.reserve(bytes_of(count, DType::float32));
    auto* const sums = reinterpret_cast<float*>(own.sums.data());
    auto* const wide = reinterpret_cast<float*>(own.wide.data());
    const bool in_place = count == p.n && p.output == DType::float32 && !p.accumulate && bias == nullptr;
    ProductKernel* kernel = nullptr;
    std::int64_t kernel_rows = 0;
    for (const RowBlock& block : row_blocks.cut(piece.rows)) {
        const std::int64_t row = piece.first_row + block.begin;
        if (block.rows != kernel_rows) kernel = &row_blocks.kernel(block.rows);
        kernel_rows = block.rows;
        const bool last = block.begin + block.used == piece.rows;
        const Destination to{p.c + bytes_of(row * p.n + first, p.output), p.n, p.output, bias,
                             last && next != nullptr ? next->kept() : nullptr};
        if (!p.accumulate && kernel->run_to(block.used, piece.a + bytes_of(row * p.k, plan.dtype), b, to))
            continue;
        const std::byte* const a = left_side(piece, block);
        if (in_place && block.used == block.rows) {
            kernel->run(a, b, p.c + bytes_of(row * p.n, p.output));
            continue;
        }
        kernel->run(a, b, own.sums.data());
        for (std::int64_t i = 0; i < block.used; ++i)
            finish(p, row + i, first, count, sums + i * count, bias, wide);
    }
}

// Chunks as whole as the threads allow, the largest first: those of a last round, too few for all threads, are cut by
// rows, too. Whoever has a part of a chunk reads and packs all of it.
std::vector<Piece> cut_pieces(std::vector<Piece> chunks, std::int64_t m, int threads) {
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const Piece& x, const Piece& y) { return x.work_per_row() > y.work_per_row(); });
    const std::size_t whole = chunks.size() - chunks.size() % static_cast<std::size_t>(threads);
    const std::int64_t block =
        m >= RowBlocks::kSizes[0] * threads ? RowBlocks::kSizes[0] : RowBlocks::kSizes[1];
    const std::int64_t blocks = (m + block - 1) / block;
    const std::int64_t groups = std::min<std::int64_t>(blocks, threads);
    std::vector<Piece> pieces(chunks.begin(), chunks.begin() + static_cast<std::ptrdiff_t>(whole));
    for (std::size_t i = whole; i < chunks.size(); ++i) {
        for (std::int64_t group = 0; group < groups; ++group) {
            const std::int64_t begin = blocks * group / groups * block;
            const std::int64_t end = std::min(m, blocks * (group + 1) / groups * block);
            pieces.push_back(chunks[i]);
            pieces.back().first_row = begin;
            pieces.back().rows = end - begin;
        }
    }
    return pieces;
}

// Rows of a that are widened at once: fewer, as of the logits' gradient, would pack b too often.
constexpr std::size_t kKeptLeftBytes = 64u << 20;  // more is given back
constexpr std::int64_t kFewestRowsAtOnce = 256;

std::int64_t rows_at_once(std::int64_t k) {
    const auto fit = static_cast<std::int64_t>(kKeptLeftBytes / bytes_of(k, DType::float32));
    return std::max(fit / RowBlocks::kSizes[0] * RowBlocks::kSizes[0], kFewestRowsAtOnce);
}

// All rows of a in float32, in this thread's memory.
const std::byte* widened_left_side(const PlainProduct& p) {
    scratch().left.reserve(bytes_of(p.m * p.k, DType::float32));
    widen_on_threads(reinterpret_cast<const bfloat16*>(p.a), reinterpret_cast<float*>(scratch().left.data()),
                     p.m * p.k);
    return scratch().left.data();
}

// All rows in one parallel section.
bool multiply_at_once(const ProductLibrary& library, std::span<const PlainProduct> products) {
    std::vector<Piece> chunks;
    const std::byte* wide = nullptr;
    for (const PlainProduct& p : products) {
        const ProductPlan& plan = product_plan(library, p.n, p.k, p.input, p.layout);
        if (!plan.supported()) return false;
        if (plan.widens() && wide == nullptr) wide = widened_left_side(p);
        for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk)
            chunks.push_back({&p, &plan, plan.widens() ? wide : p.a, chunk, 0, p.m});
    }
    const int threads = products.front().threads;
    const std::vector<Piece> pieces = cut_pieces(std::move(chunks), products.front().m, threads);
    parallel_for(static_cast<std::int64_t>(pieces.size()), threads, [&](std::int64_t item) {
        const auto index = static_cast<std::size_t>(item), next = index + static_cast<std::size_t>(threads);
        run_piece(library, pieces[index], next < pieces.size() ? &pieces[next] : nullptr);
    });
    if (scratch().left.bytes() > kKeptLeftBytes) scratch().left = Lines();
    return true;
}

bool widens(const ProductLibrary& library, const PlainProduct& p) {
    return p.input == DType::bfloat16 && product_plan(library, p.n, p.k, p.input, p.layout).widens();
}

PlainProduct rows_of(PlainProduct p, std::int64_t first, std::int64_t rows) {
    p.m = rows;
    p.a += bytes_of(first * p.k, p.input);
    p.c += bytes_of(first * p.n, p.output);
    return p;
}

}  // namespace

bool multiply(const ProductLibrary& library, std::span<const PlainProduct> products) {
    if (products.empty()) return true;
    const std::int64_t m = products.front().m, most = rows_at_once(products.front().k);
    if (m <= most || !widens(library, products.front())) return multiply_at_once(library, products);
    for (std::int64_t first = 0; first < m; first += most) {
        std::vector<PlainProduct> part;
        for (const PlainProduct& p : products) part.push_back(rows_of(p, first, std::min(most, m - first)));
        if (!multiply_at_once(library, part)) return false;
    }
    return true;
}

void widen_on_threads(const bfloat16* from, float* to, std::int64_t count) {
    constexpr std::int64_t kBlock = 4096;  // numbers
    parallel_blocks(count, kBlock,
                    [&](std::int64_t begin, std::int64_t some) { widen(from + begin, to + begin, some); });
}

std::size_t packed_columns_bytes(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype) {
    const ProductPlan& plan = product_plan(library, n, k, dtype, WeightLayout::columns);
    return plan.supported() ? plan.kept_bytes * static_cast<std::size_t>(plan.chunks) : 0;
}

void pack_columns(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype,
                  const std::byte* from, std::byte* to) {
    const ProductPlan& plan = product_plan(library, n, k, dtype, WeightLayout::columns);
    parallel_for(plan.chunks, compute_threads(), [&](std::int64_t chunk) {
        plan.keep(library, chunk, from, to + static_cast<std::size_t>(chunk) * plan.kept_bytes);
    });
}

}  // namespace tandem::ops::detail
