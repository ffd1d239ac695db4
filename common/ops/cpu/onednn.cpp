// oneDNN's matmul primitive behind product_library.h; onednn_versions.h has what differs between 2 and 3.
#include <dnnl.h>
#include <omp.h>

#include <array>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <vector>

#include "common/align.h"
#include "common/error.h"
#include "common/ops/cpu/onednn_versions.h"
#include "common/ops/cpu/pack_tiles.h"
#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {
namespace {

using dnnl::memory;

constexpr std::int64_t kUsualRows = 16;    // the packed layout is the one that oneDNN chooses for so many
constexpr std::size_t kMaxPackers = 1024;  // per thread; past it all are made again

dnnl::engine& engine() {
    static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
    return instance;
}

dnnl::stream& stream() {
    thread_local dnnl::stream instance(engine());
    return instance;
}

// oneDNN shares finished primitives between threads through a cache of its own, with a synchronisation that
// the thread sanitizer cannot see. Making one is rare: under a lock, it can.
std::mutex& making() {
    static std::mutex mutex;
    return mutex;
}

memory::data_type to_dnnl(DType dtype) {
    return dtype == DType::float32 ? memory::data_type::f32 : memory::data_type::bf16;
}

memory::desc plain(std::int64_t rows, std::int64_t columns, DType dtype, bool transposed,
                   std::int64_t stride) {
    const memory::dims strides = transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
    return {{rows, columns}, to_dnnl(dtype), strides};
}

memory::desc dense(std::int64_t rows, std::int64_t columns, DType dtype) {
    return plain(rows, columns, dtype, false, columns);
}

// One of oneDNN's own blocked kernels, not its GEMM nor its plain loops.
bool is_blocked(const dnnl::matmul::primitive_desc& description) {
    return std::string_view(description.impl_info_str()).starts_with("brg");
}

// With `making` held. A product whose right side may lie as oneDNN likes.
dnnl::matmul::primitive_desc usual_product(std::int64_t n, std::int64_t k, DType dtype) {
    omp_set_num_threads(1);
    const memory::desc any({k, n}, to_dnnl(dtype), memory::format_tag::any);
    return describe(engine(), dense(kUsualRows, k, dtype), any, dense(kUsualRows, n, DType::float32),
                    dnnl::primitive_attr());
}

// With `making` held. Zero where this machine has none. The one layout that the blocked kernels read without
// packing it first, whatever the number of rows.
memory::desc packed_layout(std::int64_t n, std::int64_t k, DType dtype) {
    const auto description = usual_product(n, k, dtype);
    return description && is_blocked(description) ? description.weights_desc() : memory::desc();
}

memory::desc layout_of(const RightSide& b) {
    switch (b.layout) {
        case WeightLayout::rows:
            return plain(b.k, b.n, b.dtype, false, b.n);
        case WeightLayout::columns:
            return plain(b.k, b.n, b.dtype, true, b.k);
        case WeightLayout::packed:
            return packed_layout(b.n, b.k, b.dtype);
        case WeightLayout::pairs:
            break;
    }
    return {};
}

class MatmulKernel : public ProductKernel {
  public:
    MatmulKernel(const dnnl::matmul::primitive_desc& description, int threads)
        : threads_(threads),
          primitive_(description),
          a_(description.src_desc(), engine(), nullptr),
          b_(description.weights_desc(), engine(), nullptr),
          c_(description.dst_desc(), engine(), nullptr),
          scratch_(description.scratchpad_desc().get_size()),
          scratchpad_(description.scratchpad_desc(), engine(), scratch_.data()),
          arguments_{{{DNNL_ARG_SRC, a_.get()},
                      {DNNL_ARG_WEIGHTS, b_.get()},
                      {DNNL_ARG_DST, c_.get()},
                      {DNNL_ARG_SCRATCHPAD, scratchpad_.get()}}} {}

    void run(const std::byte* a, const std::byte* b, std::byte* c) override {
        omp_set_num_threads(threads_);  // of the calling thread: the setting is per thread
        a_.set_data_handle(const_cast<std::byte*>(a));
        b_.set_data_handle(const_cast<std::byte*>(b));
        c_.set_data_handle(c);
        // The C call: the C++ one builds a map and a vector each time.
        const dnnl_status_t status = dnnl_primitive_execute(
            primitive_.get(), stream().get(), static_cast<int>(arguments_.size()), arguments_.data());
        if (status != dnnl_success)
            throw Error(fmt::format("oneDNN could not run a product: status {}", static_cast<int>(status)));
        stream().wait();
    }

  private:
    const int threads_;
    dnnl::matmul primitive_;
    memory a_, b_, c_;
    std::vector<std::byte> scratch_;
    memory scratchpad_;
    std::array<dnnl_exec_arg_t, 4> arguments_;
};

std::unique_ptr<ProductKernel> make(const Product& p) {
    const std::lock_guard lock(making());
    const memory::desc b = layout_of(p.b);
    if (b.get_size() == 0) return nullptr;
    omp_set_num_threads(p.threads);
    const memory::desc a = plain(p.m, p.b.k, p.b.dtype, p.transpose_a, p.transpose_a ? p.m : p.b.k);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0f);
        attributes.set_post_ops(sum);
    }
    const auto description = describe(engine(), a, b, dense(p.m, p.b.n, p.output), attributes);
    // The plain loops for bfloat16 would be far slower than widening to float32.
    const bool fast = description && (is_blocked(description) ||
                                      (p.b.dtype == DType::float32 && p.b.layout != WeightLayout::packed));
    if (!fast) return nullptr;
    return std::make_unique<MatmulKernel>(description, p.threads);
}

std::size_t packed_bytes(std::int64_t n, std::int64_t k, DType dtype) {
    const std::lock_guard lock(making());
    return packed_layout(n, k, dtype).get_size();
}

// Columns of a block where the layout is pack_tiles' one, 0 where it is another.
std::int64_t tile_columns(const memory::desc& layout, const RightSide& side) {
    const std::int64_t unit = 4 / static_cast<std::int64_t>(dtype_size(side.dtype));  // elements
    const Blocking blocking = blocking_of(layout);
    const memory::dims& inner = blocking.inner_blocks;
    if (inner.size() < 2 || inner[1] % kTileUnits != 0) return 0;
    const std::int64_t columns = inner[1];
    const std::int64_t depth = kTileUnits * unit;
    const std::int64_t padded_k = round_up(side.k, depth);
    const bool one =
        unit == 1 && inner == memory::dims{kTileUnits, columns} && blocking.inner_dims == memory::dims{0, 1};
    const bool two = unit == 2 && inner == memory::dims{kTileUnits, columns, 2} &&
                     blocking.inner_dims == memory::dims{0, 1, 0};
    const bool dense_blocks = blocking.strides[0] == depth * columns &&
                              (side.n <= columns || blocking.strides[1] == padded_k * columns);
    return (one || two) && dense_blocks ? columns : 0;
}

struct Packer {
    std::int64_t columns;  // of pack_tiles; 0: reorder
    memory from, to;
    dnnl::reorder reorder;
};

Packer make_packer(const RightSide& side, std::int64_t stride) {
    const std::lock_guard lock(making());
    const memory::desc layout = packed_layout(side.n, side.k, side.dtype);
    const std::int64_t columns = tile_columns(layout, side);
    if (columns > 0) return {columns, {}, {}, {}};
    const bool by_columns = side.layout == WeightLayout::columns;
    Packer result{0,
                  memory(plain(side.k, side.n, side.dtype, by_columns, stride), engine(), nullptr),
                  memory(layout, engine(), nullptr),
                  {}};
    result.reorder = dnnl::reorder(result.from, result.to);
    return result;
}

void pack(const RightSide& side, std::int64_t stride, const std::byte* from, std::byte* to) {
    thread_local std::map<std::pair<RightSide, std::int64_t>, Packer> packers;
    const std::pair key(side, stride);
    auto found = packers.find(key);
    if (found == packers.end()) {
        if (packers.size() >= kMaxPackers) packers.clear();
        found = packers.emplace(key, make_packer(side, stride)).first;
    }
    Packer& packer = found->second;
    if (packer.columns > 0) return pack_tiles(side, stride, packer.columns, from, to);
    omp_set_num_threads(1);
    packer.from.set_data_handle(const_cast<std::byte*>(from));
    packer.to.set_data_handle(to);
    packer.reorder.execute(stream(), packer.from, packer.to);
    stream().wait();
}

}  // namespace

std::int64_t onednn_tile_columns(std::int64_t n, std::int64_t k, DType dtype) {
    const std::lock_guard lock(making());
    const auto description = usual_product(n, k, dtype);
    if (!description || !is_blocked(description)) return 0;
    if (std::string_view(description.impl_info_str()).find("amx") != std::string_view::npos) return 0;
    return tile_columns(description.weights_desc(), {n, k, dtype, WeightLayout::packed});
}

const ProductLibrary& onednn() {
    static constexpr ProductLibrary library{make, packed_bytes, pack};
    return library;
}

}  // namespace tandem::ops::detail
