// Independent work items over the compute threads. OpenMP, because its pool is oneDNN's own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#include "common/ops/matmul.h"

namespace tandem::ops::detail {

// `fixed`: of equal items each thread has an equal run, the same one at every call with so many; what it wrote
// then is in its core's cache when the next op reads it. `shared`: whoever is free takes the next.
enum class Schedule { shared, fixed };

// Calls body(item) for item in [0, count), each exactly once; items must not share what they write, so the
// split over threads changes no bit of the result. An exception is rethrown here.
template <typename Body>
void parallel_for(std::int64_t count, int threads, const Body& body, Schedule schedule = Schedule::shared) {
    if (threads == 1 || count <= 1) {
        for (std::int64_t item = 0; item < count; ++item) body(item);
        return;
    }
    std::exception_ptr error;
    const auto run = [&](std::int64_t item) {
        try {
            body(item);
        } catch (...) {
#pragma omp critical(tandem_ops_error)
            error = std::current_exception();
        }
    };
    if (schedule == Schedule::fixed) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (std::int64_t item = 0; item < count; ++item) run(item);
    } else {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (std::int64_t item = 0; item < count; ++item) run(item);
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
    parallel_for((total + block - 1) / block, total >= kWorthThreads ? compute_threads() : 1,
                 [&](std::int64_t item) { body(item * block, std::min(block, total - item * block)); },
                 Schedule::fixed);
}

// Calls body(first, count) for some of `rows` rows of `dim` elements at a time, as parallel_blocks does.
template <typename Body>
void parallel_rows(std::int64_t rows, std::int64_t dim, const Body& body) {
    constexpr std::int64_t kBlock = 2048;  // elements
    const std::int64_t at_once = std::max(kBlock / dim, std::int64_t{1});
    parallel_blocks(rows * dim, at_once * dim,
                    [&](std::int64_t begin, std::int64_t count) { body(begin / dim, count / dim); });
}

}  // namespace tandem::ops::detail
