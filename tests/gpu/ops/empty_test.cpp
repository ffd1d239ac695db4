// Nothing to do: no rows, no tokens, no bytes. Nothing is launched with an empty grid, nothing divides by
// what is not there, and what is given is left as it was.
#include <cstring>

#include "common/ops/delta.h"
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

TEST(GpuEmpty, RowsOfNothing) {
    const Tensor weight = random({16}, 1), none = zeros({0, 16}), heads = zeros({0, 2, 16});
    compare({{none}, {weight}, {none}, {zeros({0}), true}}, BOTH(rms_norm(s, t[0], t[1], 1e-6f, t[2], t[3])));
    compare({{none}, {none}, {weight}, {none}}, BOTH(add_rms_norm(s, t[0], t[1], t[2], 1e-6f, t[3])));
    compare({{none}, {none}, {weight}, {zeros({0}), true}, {none}, {weight, true}},
            BOTH(rms_norm_backward(s, t[0], t[1], t[2], t[3], t[4], t[5], false)));
    for (const Tensor& nothing : {none, zeros({16, 0})}) {
        compare({{nothing}, {nothing}, {nothing}}, BOTH(swiglu(s, t[0], t[1], t[2])));
        compare({{nothing}, {nothing}, {nothing}, {nothing}, {nothing}},
                BOTH(swiglu_backward(s, t[0], t[1], t[2], t[3], t[4])));
    }
    compare({{none}, {none}}, BOTH(add(s, t[0], t[1])));
    compare({{none}, {weight, true}}, BOTH(linear_backward_bias(s, t[0], t[1])));
    const std::vector<std::int32_t> no_ids;
    const ops::RopeTable rope({1.0f, 0.3f, 0.05f, 0.002f, 1.0f, 0.3f, 0.05f, 0.002f});
    compare({{heads}}, BOTH(rope(s, t[0], no_ids, rope)));
    compare({{random({3, 16}, 2)}, {none}}, BOTH(embedding(s, t[0], no_ids, t[1])));
    compare({{none}, {random({3, 16}, 2), true}}, BOTH(embedding_backward(s, t[0], no_ids, t[1])));
    compare({{heads}, {heads}, {zeros({2, 0}), true}}, BOTH(attention_delta(s, t[0], t[1], t[2])));
    compare({{heads}, {heads}, {heads}, {heads}, {zeros({2, 0}), true}},
            BOTH(attention_forward(s, t[0], t[1], t[2], {}, 1.0f, t[3], t[4], {})));
}

TEST(GpuEmpty, BytesOfNothing) {
    ops::Checksum found, wanted;
    ops::CopyItem item;
    item.checksum = &found;
    tested::batched_copy(tested_stream(), {&item, 1});
    tested_stream().synchronize();
    item.checksum = &wanted;
    Stream cpu = Stream::make_inline();
    ops::batched_copy(cpu, {&item, 1});
    EXPECT_EQ(found, wanted);

    const Tensor there = to_tested(random({8}, 1));
    const Span place{there.raw(), 0};
    for (const std::int64_t rows : {0, 3}) {  // rows without elements, and none
        const ops::DeltaSource source{there.raw(),   16, rows, rows == 0 ? 8 : 0, DType::float32,
                                      DType::float32};
        const ops::DeltaResult result = tested::delta_encode(tested_stream(), source, place, place);
        EXPECT_EQ(result.changed, 0);
        EXPECT_EQ(result.bytes, 0u);
        EXPECT_EQ(result.content, wanted);
    }
}

}  // namespace
}  // namespace tandem::tests
