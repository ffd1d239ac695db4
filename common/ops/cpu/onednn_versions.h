// The differences between oneDNN 2 and 3: the description of a matmul, and the blocks of a layout.
#pragma once

#include <dnnl.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace tandem::ops::detail {

// Empty where oneDNN knows no way.
inline dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                             const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                             const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine, a, b, c, attributes, true};
#else
    return {dnnl::matmul::desc(a, b, c), attributes, engine, true};
#endif
}

// A blocked layout: blocks lie `strides` elements apart; inside them the inner blocks, the last one fastest.
struct Blocking {
    dnnl::memory::dims strides, inner_blocks, inner_dims;
};

// Empty where the layout is not made of blocks.
inline Blocking blocking_of(const dnnl::memory::desc& layout) {
#if DNNL_VERSION_MAJOR >= 3
    if (layout.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
    return {layout.get_strides(), layout.get_inner_blks(), layout.get_inner_idxs()};
#else
    if (layout.data.format_kind != dnnl_blocked || layout.data.extra.flags != 0) return {};
    const dnnl_blocking_desc_t& blocking = layout.data.format_desc.blocking;
    const int inner = blocking.inner_nblks;
    return {{blocking.strides, blocking.strides + layout.data.ndims},
            {blocking.inner_blks, blocking.inner_blks + inner},
            {blocking.inner_idxs, blocking.inner_idxs + inner}};
#endif
}

}  // namespace tandem::ops::detail
