// The ops whose ids, positions and pages lie in tensors: the values of those that take them from the host.
#include <algorithm>
#include <cstring>

#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

Tensor ints(const std::vector<std::int32_t>& values, Shape shape) {
    return to_tested(Tensor::from<std::int32_t>(values, std::move(shape)));
}

TEST(GpuTables, EmbeddingAndRope) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const std::vector<std::int32_t> ids = {3, 0, 16, 3}, positions = {0, 7, 300, 41};
        const Tensor table = to_tested(with_dtype(random({17, 24}, 1), dtype));
        const Tensor wanted = to_tested(with_dtype(zeros({4, 24}), dtype));
        const Tensor found = to_tested(with_dtype(zeros({4, 24}), dtype));
        tested::embedding(tested_stream(), table, ids, wanted);
        tested::embedding(tested_stream(), table, ints(ids, {4}), found);
        EXPECT_EQ(values_of(to_host(found)), values_of(to_host(wanted)));

        const ops::RopeTable rope({1.0f, 0.3f, 0.05f, 0.002f});
        tested::rope(tested_stream(), wanted.reshape({4, 3, 8}), positions, rope);
        tested::rope(tested_stream(), found.reshape({4, 3, 8}), ints(positions, {4}), 512, rope);
        EXPECT_EQ(values_of(to_host(found)), values_of(to_host(wanted)));
    }
}

// Sequences of several lengths, one of none; what is written is what the attention then sees.
TEST(GpuTables, PagesAreWrittenAndAttended) {
    const std::vector<std::int32_t> lengths = {5, 0, 16, 1}, pages = {4, 0, 0, 9, 9, 9, 7, 2, 9, 1, 9, 9};
    const std::vector<std::vector<std::int32_t>> tables = {{4}, {}, {7, 2}, {1}};
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::int64_t head_dim : {8, 5}) {  // whole vectors and odd rows
            const auto made = [&](Shape shape, std::uint64_t seed) {
                return with_dtype(random(std::move(shape), seed), dtype);
            };
            const Shape cache = {8, 8, 2, head_dim};
            Tensor k_cache = made(cache, 1), v_cache = made(cache, 2);
            const Tensor k = made({4, 2, head_dim}, 3), v = made({4, 2, head_dim}, 4),
                         q = made({4, 6, head_dim}, 5);
            const Tensor there_k = to_tested(k_cache), there_v = to_tested(v_cache);
            tested::write_pages(tested_stream(), to_tested(k), to_tested(v), ints(pages, {4, 3}),
                                ints(lengths, {4}), there_k, there_v);
            const auto row = static_cast<std::size_t>(2 * head_dim) * dtype_size(dtype);
            const auto put = [&](std::size_t from, std::size_t page, std::size_t slot) {
                std::memcpy(k_cache.raw() + (page * 8 + slot) * row, k.raw() + from * row, row);
                std::memcpy(v_cache.raw() + (page * 8 + slot) * row, v.raw() + from * row, row);
            };
            put(0, 4, 4), put(2, 2, 7), put(3, 1, 0);
            EXPECT_EQ(values_of(to_host(there_k)), values_of(k_cache));
            EXPECT_EQ(values_of(to_host(there_v)), values_of(v_cache));

            const Tensor wanted = to_tested(made(q.shape(), 6)), found = to_tested(made(q.shape(), 7));
            const Tensor there_q = to_tested(q);
            tested::paged_attention_decode(tested_stream(), there_q, there_k, there_v, tables, lengths, 0.3f,
                                           wanted);
            tested::paged_attention_decode(tested_stream(), there_q, there_k, there_v, ints(pages, {4, 3}),
                                           ints(lengths, {4}), 0.3f, found);
            EXPECT_EQ(values_of(to_host(found)), values_of(to_host(wanted)));
            const auto none = values_of(to_host(found.rows(1, 1)));
            EXPECT_TRUE(std::all_of(none.begin(), none.end(), [](double value) { return value == 0.0; }));
        }
    }
}

}  // namespace
}  // namespace tandem::tests
