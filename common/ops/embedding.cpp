// The checks that hold on every device, then the way to the backend.
#include "common/ops/embedding.h"

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {
namespace {

void check_ids(const char* op, std::span<const std::int32_t> ids, std::int64_t vocab) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        require(ids[i] >= -1 && ids[i] < vocab, "{}: id {} at position {} is outside the table of {} rows",
                op, ids[i], i, vocab);
    }
}

}  // namespace

void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y) {
    detail::check_ndim("embedding", "table", table, 2);
    detail::check_floating("embedding", "table", table);
    detail::check_shape("embedding", "y", y, {static_cast<std::int64_t>(ids.size()), table.dim(1)});
    detail::check_dtype("embedding", "y", y, table.dtype());
    check_ids("embedding", ids, table.dim(0));
    TANDEM_ROUTE(embedding, table, ids, y);
}

void embedding(Stream& stream, const Tensor& table, const Tensor& ids, Tensor y) {
    detail::check_floating("embedding", "table", table);
    detail::check_ndim("embedding", "table", table, 2);
    detail::check_ndim("embedding", "ids", ids, 1);
    detail::check_dtype("embedding", "ids", ids, DType::int32);
    detail::check_shape("embedding", "y", y, {ids.dim(0), table.dim(1)});
    detail::check_dtype("embedding", "y", y, table.dtype());
    TANDEM_ROUTE(embedding, table, ids, y);
}

void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable) {
    detail::check_ndim("embedding_backward", "dtable", dtable, 2);
    detail::check_dtype("embedding_backward", "dtable", dtable, DType::float32);
    detail::check_floating("embedding_backward", "dy", dy);
    detail::check_shape("embedding_backward", "dy", dy,
                        {static_cast<std::int64_t>(ids.size()), dtable.dim(1)});
    check_ids("embedding_backward", ids, dtable.dim(0));
    TANDEM_ROUTE(embedding_backward, dy, ids, dtable);
}

}  // namespace tandem::ops
