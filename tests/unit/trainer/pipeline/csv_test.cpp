// Schedules out and in again, and files that are none.
#include "trainer/pipeline/csv.h"

#include <gmock/gmock.h>

#include "common/error.h"
#include "tests/unit/trainer/pipeline/lists.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/lower.h"

namespace tandem::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ScheduleCsv, ComesBackInBothFormats) {
    for (const auto& [name, stages] :
         {std::pair{"1F1B", 1}, {"Interleaved1F1B", 3}, {"ZBVZeroBubble", 2}, {"DualPipeV", 2}}) {
        const Schedule schedule = make_schedule(name, 3, stages, 6);
        const Schedule lowered = lower(schedule);
        for (const Schedule* written : {&schedule, &lowered}) {
            const Schedule read = read_csv(to_csv(*written), "f.csv");
            EXPECT_EQ(read.ranks, written->ranks) << name;
            EXPECT_EQ(read.rank_of_stage, written->rank_of_stage) << name;
            EXPECT_EQ(read.microbatches, 6) << name;
            EXPECT_EQ(has_communication(read), written == &lowered) << name;
        }
    }
}

// As PyTorch's csv.writer ends lines, and writes None.
TEST(ScheduleCsv, IsPyTorchs) {
    EXPECT_EQ(to_csv(make_schedule("1F1B", 2, 1, 2)), "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
    const Schedule read =
        read_csv("0F0,0F1,,,0B0,,0B1\r\n,1F0,1B0,1F1,\" 1B1\"", "f.csv", CsvFormat::compute_only);
    EXPECT_EQ(read.ranks, make_schedule("1F1B", 2, 1, 2).ranks);
    EXPECT_THAT(read.rank_of_stage, ElementsAre(0, 1));
}

TEST(ScheduleCsv, RefusalsNameRowAndCell) {
    using Format = std::optional<CsvFormat>;
    const auto refused = [](const std::string& text, const std::string& part, Format format = {}) {
        EXPECT_THAT([&] { read_csv(text, "f.csv", format); }, ThrowsMessage<ConfigError>(HasSubstr(part)))
            << text;
    };
    refused("", "f.csv: is empty; write one row a rank");
    refused("0F0,0B0\n1F0,1Q0\n", "f.csv: row 2, cell 2: '1Q0': 'Q' is no action of one stage");
    refused("0F0,0B0\n,,1F\n", "row 2, cell 3: '1F' has no micro-batch");
    refused("0F0;0B0\n", "row 1, cell 1: '0F0;0B0': ';0B0' after the action");
    refused("0F0,0B0x\n", "row 1, cell 2: '0B0x': 'x' after the action");
    refused("0F0,\"0B0\n", "row 1, cell 2");
    refused(
        "\xef\xbb\xbf"
        "0F0,0B0\n",
        "row 1, cell 1");
    refused("0F0,0B0\n\n", "f.csv: row 2: has no action; write one row a rank");
    refused("0F0,0B0\n,,\n1F0,1B0\n", "f.csv: row 2: has no action");
    refused("0F0,0B0\n1F0,0F1\n", "f.csv: row 2: 0F1: stage 0 is row 1's already");
    refused("0F0,0SEND_F0,0B0\n", "row 1, cell 2: 0SEND_F0 is no compute action; the file is compute_comms",
            CsvFormat::compute_only);
    refused("0F0,,0SEND_F0,0B0\n", "row 1, cell 2: is empty; only compute_only has idle time",
            CsvFormat::compute_comms);
    refused("0F0,,0SEND_F0,0B0\n", "row 1, cell 2: is empty");
}

// Numbers far apart ask for no memory: there are fewer actions than they would need.
TEST(ScheduleCsv, ThatNamesALotIsRefusedAtOnce) {
    const Schedule far = read_csv("0F0,1048576F1048575\n", "f.csv");
    EXPECT_THAT([&] { check_compute(far); }, ThrowsMessage<BadInput>(HasSubstr("is on no rank")));
    const Schedule many = read_csv("0F0,0F1048575\n", "f.csv");
    EXPECT_THAT(
        [&] { check_compute(many); },
        ThrowsMessage<BadInput>(HasSubstr("2 actions are too few for 1 stages and 1048576 micro-batches")));
}

}  // namespace
}  // namespace tandem::pipeline
