// The checks of ops whose ids, positions and pages lie in tensors.
#include "common/ops/check.h"
#include "common/ops/checks.h"
#include "common/ops/cpu/attention_pack.h"

namespace tandem::ops::checks {
namespace {

void check_tables(const char* op, const Tensor& pages, const Tensor& lengths, std::int64_t batch) {
    detail::check_ndim(op, "pages", pages, 2);
    detail::check_dtype(op, "pages", pages, DType::int32);
    detail::check_shape(op, "lengths", lengths, {batch});
    detail::check_dtype(op, "lengths", lengths, DType::int32);
    require(pages.dim(0) == batch, "{}: pages {} for {} sequences", op, to_string(pages.shape()), batch);
}

}  // namespace

void embedding(const Tensor& table, const Tensor& ids, const Tensor& y) {
    detail::check_floating("embedding", "table", table);
    detail::check_ndim("embedding", "table", table, 2);
    detail::check_ndim("embedding", "ids", ids, 1);
    detail::check_dtype("embedding", "ids", ids, DType::int32);
    detail::check_shape("embedding", "y", y, {ids.dim(0), table.dim(1)});
    detail::check_dtype("embedding", "y", y, table.dtype());
}

void rope(const Tensor& x, const Tensor& positions, std::int64_t limit, const RopeTable& table) {
    rope("rope", x, std::vector<std::int32_t>(static_cast<std::size_t>(x.dim(0)), 0), table);
    detail::check_shape("rope", "positions", positions, {x.dim(0)});
    detail::check_dtype("rope", "positions", positions, DType::int32);
    require(limit > 0, "rope: positions below {}", limit);
}

void paged_attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, const Tensor& out) {
    constexpr const char* kOp = "paged_attention_decode";
    detail::check_ndim(kOp, "q", q, 3);
    const auto batch = static_cast<std::size_t>(q.dim(0));
    paged_attention_decode(q, k_cache, v_cache, std::vector<std::vector<std::int32_t>>(batch),
                           std::vector<std::int32_t>(batch, 0), out);
    check_tables(kOp, pages, lengths, q.dim(0));
}

void write_pages(const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 const Tensor& k_cache, const Tensor& v_cache) {
    constexpr const char* kOp = "write_pages";
    detail::check_floating(kOp, "k", k);
    detail::check_ndim(kOp, "k", k, 3);
    detail::check_ndim(kOp, "k_cache", k_cache, 4);
    const Shape cache = {k_cache.dim(0), k_cache.dim(1), k.dim(1), k.dim(2)};
    detail::check_shape(kOp, "v", v, k.shape());
    detail::check_shape(kOp, "k_cache", k_cache, cache);
    detail::check_shape(kOp, "v_cache", v_cache, cache);
    for (const Tensor* other : {&v, &k_cache, &v_cache}) detail::check_dtype(kOp, "v", *other, k.dtype());
    check_tables(kOp, pages, lengths, k.dim(0));
}

void delta_apply(std::size_t width, std::int64_t rows, std::int64_t row_elements, std::size_t stride) {
    require(width == 2 || width == 4, "delta_apply: elements of {} bytes", width);
    require(rows >= 0 && row_elements >= 0, "delta_apply: {} rows of {} elements", rows, row_elements);
    const std::size_t row_bytes = static_cast<std::size_t>(row_elements) * width;
    require(rows <= 1 || stride >= row_bytes, "delta_apply: rows of {} bytes lie {} bytes apart", row_bytes,
            stride);
}

}  // namespace tandem::ops::checks
