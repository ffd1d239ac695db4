// Copies out of memory that another process changes meanwhile: the checksum is of what was written, since the
// source is read once.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/device/memory.h"
#include "common/device/shared_arena.h"
#include "common/ops/batched_copy.h"
#include "tests/support/flipping_process.h"

namespace tandem {
namespace {

struct Form {
    const char* name;
    std::size_t bytes;  // of a row in the target
    std::int64_t rows = 1;
    std::size_t from_gap = 0, to_gap = 0;
    std::size_t to_at = 0;
    std::size_t flipped = 0;  // offset in the source
    bool cast = false;        // to bfloat16
    bool non_temporal = true;
};

class CopyOnce : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(
    Forms, CopyOnce,
    ::testing::Values(
        Form{.name = "lines", .bytes = 4096, .flipped = 1000},
        Form{.name = "last_line", .bytes = 1024, .flipped = 1000},
        Form{.name = "lines_past_those_of_the_target", .bytes = 4096, .to_at = 8, .flipped = 1000},
        Form{.name = "ragged_end", .bytes = 1064, .flipped = 1050},
        Form{.name = "a_few_bytes", .bytes = 40, .flipped = 9},
        Form{.name = "a_few_lines", .bytes = 192, .flipped = 100},
        Form{.name = "rows", .bytes = 128, .rows = 20, .from_gap = 64, .to_gap = 64, .flipped = 800},
        Form{.name = "ragged_rows", .bytes = 100, .rows = 20, .from_gap = 28, .to_gap = 12, .flipped = 800},
        Form{.name = "rows_put_together", .bytes = 100, .rows = 20, .from_gap = 28, .flipped = 800},
        Form{.name = "cast", .bytes = 2048, .flipped = 1003, .cast = true},
        Form{.name = "through_the_cache", .bytes = 4096, .flipped = 1000, .non_temporal = false}),
    [](const auto& info) { return info.param.name; });

TEST_P(CopyOnce, TheChecksumIsOfWhatWasWritten) {
    const Form& form = GetParam();
    constexpr int kCopies = 30'000;
    const SharedArena source = SharedArena::create("source", 1 << 16);
    for (std::size_t i = 0; i < source.bytes(); ++i) source.data()[i] = static_cast<std::byte>(i * 7 % 61);
    const Buffer target(1 << 16, "target");
    test::FlippingProcess peer;
    peer.move_to(source.data() + form.flipped);

    ops::Checksum checksum;
    ops::CopyItem item;
    const std::size_t from_bytes = form.bytes * (form.cast ? 2 : 1);
    item.from = {source.data(), from_bytes};
    item.to = {target.data() + form.to_at, form.bytes};
    item.from_dtype = form.cast ? DType::float32 : DType::bfloat16;
    item.to_dtype = DType::bfloat16;
    item.checksum = &checksum;
    item.non_temporal = form.non_temporal;
    item.rows = form.rows;
    item.from_stride = from_bytes + form.from_gap;
    item.to_stride = form.bytes + form.to_gap;
    ops::CopyItem written = item;
    written.from = item.to;
    written.from_stride = item.to_stride;
    written.from_dtype = DType::bfloat16;
    Stream here = Stream::make_inline();
    std::size_t values = 0;
    ops::Checksum last;
    for (int i = 0; i < kCopies || (values < 2 && i < 100 * kCopies); ++i) {
        ops::batched_copy(here, {&item, 1});
        ASSERT_EQ(checksum, ops::copy_checksum(written)) << "copy " << i;
        if (i == 0 || checksum != last) ++values;
        last = checksum;
    }
    EXPECT_GE(values, 2u) << "the source never changed";
}

}  // namespace
}  // namespace tandem
