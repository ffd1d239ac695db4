// Tables that fit a terminal, and lists of numbers as people type them.
#include "trainer/inspect/text.h"

#include <gmock/gmock.h>

#include <sstream>

#include "common/error.h"
#include "trainer/inspect/mesh.h"
#include "trainer/inspect/redistribute.h"
#include "trainer/inspect/schedule.h"
#include "trainer/inspect/shard.h"

namespace tandem::inspect {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::string expect_fits(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kColumns) << line;
    return text;
}

TEST(InspectText, CutsListsAndCountsTheRest) {
    const std::vector<std::string> words{"0", "1", "2", "3"};
    EXPECT_EQ(fit(words, ", ", 10), "0, 1, 2, 3");
    EXPECT_EQ(fit(words, ", ", 9), "0, ... +3");
    EXPECT_EQ(fit(words, ", ", 3), "... +4");
    EXPECT_EQ(fit({}, ", ", 3), "");
    EXPECT_EQ(list_of(std::vector<int>{5, 6}), "[5, 6]");
}

TEST(InspectText, ReadsListsOfNumbers) {
    EXPECT_THAT(parse_shape("--shape", "[10, 7,0]"), ElementsAre(10, 7, 0));
    EXPECT_THAT(parse_shape("--shape", ""), IsEmpty());
    EXPECT_THAT(parse_mesh("--mesh", "2"), ElementsAre(2));
    const auto refused = [](const std::string& shape, const std::string& mesh, const std::string& part) {
        const auto parse = [&] {
            parse_shape("--shape", shape);
            parse_mesh("--mesh", mesh);
        };
        EXPECT_THAT(parse, ThrowsMessage<InvalidArgument>(HasSubstr(part)));
    };
    refused("10,x", "2", "--shape 10,x: 'x' must be a number from 0");
    refused("10,,7", "2", "write the list as in --shape 4,2");
    refused("10,", "2", "'' must be a number");
    refused("-1", "2", "'-1' must be a number from 0");
    refused("1", "", "--mesh: a mesh needs at least one axis, as in --mesh 2,2");
    refused("1", "2,0", "--mesh 2,0: '0' must be a number from 1");
    refused("1", "1024,1025", "more than 1048576 ranks");
    refused("1048576,1048577", "1", "more than 1099511627776 elements");
    refused("0,1099511627776,2", "1", "more than 1099511627776 elements");
}

TEST(InspectText, CoordinatesAreRowMajor) {
    EXPECT_THAT(coordinates_of(0, {2, 3}), ElementsAre(0, 0));
    EXPECT_THAT(coordinates_of(4, {2, 3}), ElementsAre(1, 1));
}

TEST(InspectText, TablesOfLargeMeshesFit) {
    const std::string text = expect_fits(to_text(inspect_mesh({4, 16, 4, 8, 8, 16, 8}, 16384)));
    EXPECT_THAT(text, HasSubstr("16384 ranks = pp 8 x dp_replicate 4 x dp_shard 16 x cp 4 x tp 8"));
    EXPECT_THAT(text, HasSubstr("[0, 1, 2, 3, 4, 5, 6, 7] ... +2047"));
    EXPECT_THAT(text, HasSubstr("sequence divisor 64"));
    expect_fits(to_text(inspect_mesh({1, -1, 1, 1, 1, 1, 1}, 1)));
}

TEST(InspectText, TablesOfLayoutsFit) {
    const std::string rows =
        expect_fits(to_text(inspect_shard({5, 70000, 3}, {8, 8}, {StridedShard(1, 2000), Replicate()})));
    EXPECT_THAT(rows, HasSubstr("24 more ranks"));
    EXPECT_THAT(rows, HasSubstr("[0:5] [0:5 ... +1999] [0:3]"));
    EXPECT_THAT(expect_fits(to_text(inspect_shard({10, 7}, {2, 2}, {Shard(0), Shard(1)}))),
                HasSubstr("[5, 3]                  [5:10] [4:7]"));
    const Shape many(12, 4);
    expect_fits(to_text(inspect_shard(many, std::vector<int>(12, 2), Placements(12, StridedShard(3, 2)))));
}

TEST(InspectText, TablesOfTransformsFit) {
    const auto text = [](const Shape& shape, const std::vector<int>& mesh, const Placements& from,
                         const Placements& to) {
        return expect_fits(to_text(inspect_redistribute(shape, DType::int64, mesh, from, to)));
    };
    EXPECT_THAT(text({10, 7}, {4}, {Shard(0)}, {Shard(1)}), HasSubstr("72 to 112"));
    EXPECT_THAT(text({10, 7}, {4}, {Shard(0)}, {Shard(0)}), HasSubstr("nothing to do"));
    text({std::int64_t{1} << 40}, {1024}, {Partial()}, {Replicate()});
    text({4, 4}, {2}, {StridedShard(1, 1000000)}, {StridedShard(0, 1000000)});
    text(Shape(10, 2), std::vector<int>(10, 2), Placements(10, StridedShard(1, 2)), Placements(10, Shard(0)));
}

TEST(InspectText, TablesOfSchedulesFit) {
    const auto text = [](const ScheduleRequest& request) {
        return expect_fits(to_text(inspect_schedule(request)));
    };
    const std::string rows =
        text({.name = "Interleaved1F1B", .ranks = 4, .stages_per_rank = 2, .microbatches = 8});
    EXPECT_THAT(rows, HasSubstr("Interleaved1F1B: 4 ranks, 8 stages, 8 micro-batches\n"
                                "makespan 57 = ideal 48 + bubble 9 (15.8%)"));
    EXPECT_THAT(rows, HasSubstr("      3  3 7                  48        9     5  3F0 3F1"));
    text({.name = "DualPipeV", .ranks = 4, .stages_per_rank = 2, .microbatches = 8, .lowered = true});
    EXPECT_THAT(
        text({.name = "InterleavedZeroBubble", .ranks = 64, .stages_per_rank = 8, .microbatches = 64}),
        HasSubstr("24 more ranks; --json lists all"));
    text({.name = "GPipe", .ranks = 1, .microbatches = 1 << 16});
}

}  // namespace
}  // namespace tandem::inspect
