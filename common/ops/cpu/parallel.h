// Independent work items over the compute threads. OpenMP, because its pool is oneDNN's own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#include "common/ops/matmul.h"

namespace tandem::ops::detail {

// Calls body(item) for item in [0, count), each exactly once; items must not share what they write, so the
// split over threads changes no bit of the result. An exception is rethrown here.
template <typename Body>
void parallel_for(std::int64_t count, int threads, const Body& body) {
    if (threads == 1 || count <= 1) {
        for (std::int64_t item = 0; item < count; ++item) body(item);
        return;
    }
    std::exception_ptr error;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (std::int64_t item = 0; item < count; ++item) {
        try {
            body(item);
        } catch (...) {
#pragma omp critical(tandem_ops_error)
            error = std::current_exception();
        }
    }
    if (error) std::rethrow_exception(error);
}

template <typename Body>
void parallel_for(std::int64_t count, const Body& body) {
    parallel_for(count, compute_threads(), body);
}

// Calls body(begin, count) for the blocks of [0, total), on several threads where that is worth waking them.
template <typename Body>
void parallel_blocks(std::int64_t total, std::int64_t block, const Body& body) {
    constexpr std::int64_t kWorthThreads = 16384;  // elements: some 10 µs of work
    const auto run = [&](std::int64_t item) { body(item * block, std::min(block, total - item * block)); };
    const std::int64_t blocks = (total + block - 1) / block;
    if (total >= kWorthThreads) return parallel_for(blocks, run);
    for (std::int64_t item = 0; item < blocks; ++item) run(item);
}

}  // namespace tandem::ops::detail
