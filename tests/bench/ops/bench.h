// A small table of measurements: each verified by its caller, timed as the median of a few runs, printed as
// text or JSON.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/tensor/tensor.h"

namespace tandem::bench {

struct Row {
    std::string what;
    double median_ms = 0;
    double rate = 0;   // in `unit`
    std::string unit;  // "GFLOP/s", "GB/s"
    double ratio = 0;  // of `against`, measured in this run; 0: none
    std::string against;
};

struct Table {
    std::vector<Row> rows;
    double fp32_rate = 0;  // oneDNN, 1024^3: measure_product_rates()
    double bf16_rate = 0;
    double copy_rate = 0;  // memcpy
};

// Median milliseconds of `runs` calls, after one call that warms up. CPU time of this thread: the ops run on
// it alone, and other programs of a shared machine then do not count.
double median_ms(const std::function<void()>& body, int runs = 7);

// Medians of calls in turns with what they are held to: what else runs on a machine changes its rates within seconds.
struct InTurns {
    double ms = 0;
    double ratio = 0;  // milliseconds of `light` just before and behind a call, to the call's
};
InTurns in_turns(const std::function<void()>& body, const std::function<void()>& light, int runs = 7);

Tensor random_tensor(const Shape& shape, DType dtype, unsigned seed);

// Reads a tensor that is not all zeros as fast as memory gives it: what others are held to.
void read_all(const Tensor& tensor);

// A product of 1024^3 with plain weights, as measure_product_rates has it.
constexpr double kProductFlops = 2.0 * 1024 * 1024 * 1024;
std::function<void()> product_of(DType dtype);

// Adds rows for both dtypes, where they are not there yet.
void measure_product_rates(Table& table);

void matmul_rows(Table& table);
void attention_rows(Table& table);
void copy_rows(Table& table);
void encode_rows(Table& table);
void row_rows(Table& table);

}  // namespace tandem::bench
