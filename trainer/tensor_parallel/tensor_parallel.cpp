#include "trainer/tensor_parallel/tensor_parallel.h"

#include <span>

namespace tandem::trainer {
namespace {

Tensor rows_like(const Tensor& tensor, std::int64_t rows, MemoryPool& pool) {
    return Tensor::empty({rows, tensor.dim(1)}, tensor.dtype(), "activations", pool);
}

}  // namespace

std::int64_t TensorParallel::kept_rows(std::int64_t rows) const {
    return cuts_rows_ ? (rows + size() - 1) / size() : rows;
}

MemoryPool& TensorParallel::memory(const Stream& stream) const {
    return size() > 1 ? group_.memory(stream.device()) : device_pool(stream.device());
}

Tensor TensorParallel::all_rows(Stream& stream, const Tensor& kept, std::int64_t rows) const {
    if (!cuts_rows_) return kept;
    const Tensor all = rows_like(kept, kept.dim(0) * size(), device_pool(stream.device()));
    const comm::GatherItem item{kept.span(), all.span()};
    stream.wait(group_.all_gather(std::span(&item, 1), stream).event());
    return all.rows(0, rows);
}

Tensor TensorParallel::sum(Stream& stream, const Tensor& terms) const {
    if (size() == 1) return terms;
    if (!cuts_rows_) {
        stream.wait(group_.all_reduce(terms.span(), terms.dtype(), comm::ReduceOp::sum, stream).event());
        return terms;
    }
    const std::int64_t kept_count = kept_rows(terms.dim(0));
    Tensor padded = terms;
    if (kept_count * size() != terms.dim(0)) {
        padded = rows_like(terms, kept_count * size(), memory(stream));
        copy(stream, terms, padded.rows(0, terms.dim(0)));
        fill_zero(stream, padded.rows(terms.dim(0), padded.dim(0) - terms.dim(0)).span());
    }
    const Tensor kept = rows_like(terms, kept_count, memory(stream));
    const comm::ReduceScatterItem item{padded.span(), kept.span(), terms.dtype(), false};
    stream.wait(group_.reduce_scatter(std::span(&item, 1), comm::ReduceOp::sum, stream).event());
    return kept;
}

}  // namespace tandem::trainer
