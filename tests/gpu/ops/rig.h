// Ops on a GPU against the same ops on the CPU. The tests are compiled twice: `tested` is the namespace that
// they call, tandem::ops with tensors on the first GPU (a real one, or the emulated one of
// TANDEM_EMULATED_GPUS), or tandem::ops::on_host, the CUDA kernels run on the host.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

#include "common/ops/adamw.h"
#include "common/ops/attention.h"
#include "common/ops/batched_copy.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/delta.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/finite.h"
#include "common/ops/matmul.h"
#include "common/ops/quantize.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rope.h"
#include "common/ops/sampling.h"
#include "common/ops/swiglu.h"
#include "common/tensor/tensor.h"

#if defined(TANDEM_KERNELS_ON_HOST)
namespace tested = tandem::ops::on_host;
#else
namespace tested = tandem::ops;
#endif

namespace tandem::tests {

// The stream of the tested ops, and tensors where it can use them.
Stream& tested_stream();
Tensor to_tested(const Tensor& host);
Tensor to_host(const Tensor& tensor);  // waits for the stream

Tensor random(Shape shape, std::uint64_t seed, float scale = 1.0f);  // float32, normal
std::vector<std::int32_t> random_ids(std::int64_t count, std::int32_t below, std::uint64_t seed);
Tensor zeros(Shape shape);
Tensor with_dtype(const Tensor& tensor, DType dtype);
std::vector<double> values_of(const Tensor& host);

// What an op reads or writes. `fixed`: float32 whatever the others are.
struct Arg {
    Tensor tensor;
    bool fixed = false;
};

using Call = std::function<void(Stream&, std::vector<Tensor>&)>;

// Runs both on the same arguments in float32 (equal to 1e-5, relative to the larger of an element and the
// tensor's root mean square) and in bfloat16 (at most twice the error that the CPU makes against float32
// arithmetic on the same values, or a step of the largest value: cuBLASLt rounds some products to bfloat16
// before it adds them, as seen on an H100).
void compare(const std::vector<Arg>& args, const Call& on_cpu, const Call& on_tested);
void compare_float32(const std::vector<Arg>& args, const Call& on_cpu, const Call& on_tested);
void expect_close(const Tensor& found, const Tensor& wanted, double tolerance = 1e-5);

// compare(args, BOTH(rms_norm(s, t[0], …)))
#define BOTH(call)                                                            \
    [&](Stream& s, std::vector<Tensor>& t) { (void)t, ::tandem::ops::call; }, \
        [&](Stream& s, std::vector<Tensor>& t) { (void)t, ::tested::call; }

}  // namespace tandem::tests
