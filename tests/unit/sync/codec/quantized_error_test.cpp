// Quantised engines that a session refuses at set-up, naming the tensor.
#include <gmock/gmock.h>

#include "tests/unit/sync/codec/quantized_oracle.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<TensorInfo>& trainer, const std::vector<TensorInfo>& engine,
                    Mode mode) {
    TestTarget target(engine);
    try {
        with_engines({{2}, {Shard(0)}}, {&target}, trainer, DType::float32, options_for(mode, 16384),
                     [](comm::Communicator&, Session&, TestSource&) {});
    } catch (const SyncError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Quantized, WhatCannotBeBroughtOverIsRefusedByName) {
    EXPECT_THAT(refusal(model(), engine_tensors(DType::int8), Mode::delta),
                HasSubstr("mode delta cannot bring quantised tensors over, like 'a.weight': use gather"));
    const std::vector<TensorInfo> trainer{{"w.weight", {256, 256}, DType::float32, {}}};
    const TensorInfo weight{"w.weight", {256, 256}, DType::float8_e4m3fn, {}};
    const TensorInfo scales{"w.weight_scale_inv", {2, 2}, DType::float32, {}};
    EXPECT_EQ(refusal(trainer, {weight, scales}, Mode::gather), "accepted");
    EXPECT_THAT(refusal(trainer, {weight}, Mode::gather),
                HasSubstr("'w.weight' is float8_e4m3fn but has no float32 tensor 'w.weight_scale_inv'"));
    TensorInfo narrow = scales;
    narrow.dtype = DType::bfloat16;
    EXPECT_THAT(refusal(trainer, {weight, narrow}, Mode::gather), HasSubstr("has no float32 tensor"));
    TensorInfo by_row = scales;
    by_row.shape = {256, 1};
    EXPECT_THAT(refusal(trainer, {weight, by_row}, Mode::gather), HasSubstr("'w.weight_scale_inv'"));
    const TensorInfo plain{
        "plain", {256, 256}, DType::bfloat16, {{"w.weight", {0, 0}, {256, 256}, 0, {256, 1}}}};
    EXPECT_THAT(refusal(trainer, {weight, scales, plain}, Mode::gather),
                HasSubstr("'w.weight' is wanted as float8_e4m3fn and as bfloat16"));
    EXPECT_THAT(refusal({{"n.weight", {256}, DType::float32, {}}},
                        {{"n.weight", {256}, DType::float8_e4m3fn, {}}}, Mode::gather),
                HasSubstr("'n.weight' [256] is not a matrix"));
    // A slice across blocks, and scales of another slice.
    const auto slice = [&](std::int64_t start, std::int64_t scale_start) {
        const TensorInfo half{
            "half", {128, 256}, DType::float8_e4m3fn, {{"w.weight", {start, 0}, {128, 256}, 0, {256, 1}}}};
        const TensorInfo its{"half_scale_inv",
                             {1, 2},
                             DType::float32,
                             {{"w.weight_scale_inv", {scale_start, 0}, {1, 2}, 0, {2, 1}}}};
        return refusal(trainer, {half, its}, Mode::gather);
    };
    EXPECT_EQ(slice(128, 1), "accepted");
    EXPECT_THAT(slice(64, 1), HasSubstr("does not lie along blocks of 128×128"));
    EXPECT_THAT(slice(128, 0), HasSubstr("'half_scale_inv' does not hold the scales [1, 2] at [1, 0]"));
}

}  // namespace
}  // namespace tandem::sync
