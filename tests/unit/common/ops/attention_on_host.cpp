#include "tests/unit/common/ops/attention_on_host.h"

#include "tests/support/kernels_on_host_counts.h"

namespace tandem::tests {

HostOutputs host_forward(const HostCase& c, DType out_dtype) {
    std::mt19937 generator(99);
    Tensor out = to_tested(testing::random_tensor(generator, c.q.shape(), out_dtype));
    Tensor lse = to_tested(testing::random_tensor(generator, {c.dims.heads, c.dims.q_rows}));
    tested::attention_forward(tested_stream(), to_tested(c.q), to_tested(c.k), to_tested(c.v), c.segments,
                              c.scale, out, lse, {});
    return {to_host(out), to_host(lse)};
}

bool used_tensor_cores() {
    const fibers::Counts counts = fibers::take_counts();
    EXPECT_EQ(counts.bank_conflicts, 0) << "of " << counts.matrix_loads << " loads";
    return counts.products + counts.group_products > 0;
}

}  // namespace tandem::tests
