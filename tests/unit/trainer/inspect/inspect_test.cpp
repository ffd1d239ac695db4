// What the inspections report: the golden tables (chunks, strided shards, rank lists) of an independent
// script, and transforms worked out by hand.
#include <gmock/gmock.h>

#include "common/error.h"
#include "trainer/inspect/mesh.h"
#include "trainer/inspect/redistribute.h"
#include "trainer/inspect/schedule.h"
#include "trainer/inspect/shard.h"

namespace tandem::inspect {
namespace {

using nlohmann::json;
using Runs = std::vector<std::vector<Run>>;  // [rank]
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Without the order of keys, so that the comparison is one of values.
template <typename Report>
json values(const Report& report) {
    return json::parse(to_json(report).dump());
}

TEST(InspectMesh, EightRanksAsInTheGoldenTable) {
    const MeshReport report = inspect_mesh({2, 2, 1, 2, 1, 1, 1}, 8);
    EXPECT_EQ(values(report), json::parse(R"j({
        "sizes": {"pp": 1, "batch": 4, "loss": 4, "dp_replicate": 2, "fsdp": 2, "cp": 1, "tp": 2, "ep": 1,
                  "efsdp": 4, "etp": 1},
        "exists": {"pp": false, "batch": true, "loss": true, "dp_replicate": true, "fsdp": true, "cp": false,
                   "tp": true, "ep": false, "efsdp": false, "etp": false},
        "groups": {"pp": [[0], [1], [2], [3], [4], [5], [6], [7]],
                   "batch": [[0, 2, 4, 6], [1, 3, 5, 7]],
                   "cp": [[0], [1], [2], [3], [4], [5], [6], [7]],
                   "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
                   "loss": [[0, 2, 4, 6], [1, 3, 5, 7]],
                   "dp_replicate": [[0, 4], [1, 5], [2, 6], [3, 7]],
                   "fsdp": [[0, 2], [1, 3], [4, 6], [5, 7]],
                   "efsdp": [[0, 1, 2, 3], [4, 5, 6, 7]],
                   "ep": [[0], [1], [2], [3], [4], [5], [6], [7]],
                   "etp": [[0], [1], [2], [3], [4], [5], [6], [7]]},
        "fsdp_gradient_divide_factor": 4, "non_data_parallel_size": 2, "seq_len_divisor": 4})j"));
    std::vector<std::string> order;
    const auto document = to_json(report);
    for (const auto& item : document["sizes"].items()) order.push_back(item.key());
    EXPECT_THAT(order,
                ElementsAre("pp", "batch", "loss", "dp_replicate", "fsdp", "cp", "tp", "ep", "efsdp", "etp"));
}

TEST(InspectMesh, ExpertsAsInTheGoldenTable) {
    const json report = values(inspect_mesh({1, -1, 2, 2, 1, 4, 1}, 8));  // dp_shard comes out as 2
    EXPECT_EQ(report["groups"], json::parse(R"j({
        "pp": [[0], [1], [2], [3], [4], [5], [6], [7]],
        "batch": [[0, 4], [1, 5], [2, 6], [3, 7]],
        "cp": [[0, 2], [1, 3], [4, 6], [5, 7]],
        "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "loss": [[0, 2, 4, 6], [1, 3, 5, 7]],
        "dp_replicate": [[0], [1], [2], [3], [4], [5], [6], [7]],
        "fsdp": [[0, 2, 4, 6], [1, 3, 5, 7]],
        "efsdp": [[0, 4], [1, 5], [2, 6], [3, 7]],
        "ep": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "etp": [[0], [1], [2], [3], [4], [5], [6], [7]]})j"));
    EXPECT_TRUE(report["exists"]["efsdp"]);
    EXPECT_FALSE(report["exists"]["etp"]);
}

TEST(InspectMesh, OnlyTheAxesAskedFor) {
    const json report = values(inspect_mesh({2, 2, 1, 2, 1, 1, 1}, 8, {"tp", "fsdp"}));
    EXPECT_EQ(report["sizes"], json::parse(R"j({"fsdp": 2, "tp": 2})j"));
    EXPECT_EQ(report["groups"].size(), 2u);
    EXPECT_THAT([] { inspect_mesh({}, 8, {"dp_shard"}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("Valid dimensions are: [pp, batch, loss,")));
    EXPECT_THAT([] { inspect_mesh({}, (1 << 20) + 1); },
                ThrowsMessage<InvalidArgument>(HasSubstr("at most 1048576")));
}

// Sizes and offsets of one dim over k ranks.
std::vector<std::pair<std::int64_t, std::int64_t>> chunks(std::int64_t n, int k) {
    std::vector<std::pair<std::int64_t, std::int64_t>> result;
    for (const LocalLayout& rank : inspect_shard({n}, {k}, {Shard(0)}).ranks)
        result.emplace_back(rank.shape[0], rank.runs[0].empty() ? n : rank.runs[0][0].first);
    return result;
}

TEST(InspectShard, ChunksAsInTheGoldenTable) {
    using Chunks = std::vector<std::pair<std::int64_t, std::int64_t>>;
    EXPECT_EQ(chunks(10, 4), (Chunks{{3, 0}, {3, 3}, {3, 6}, {1, 9}}));
    EXPECT_EQ(chunks(5, 4), (Chunks{{2, 0}, {2, 2}, {1, 4}, {0, 5}}));
    EXPECT_EQ(chunks(3, 4), (Chunks{{1, 0}, {1, 1}, {1, 2}, {0, 3}}));
    EXPECT_EQ(chunks(2, 4), (Chunks{{1, 0}, {1, 1}, {0, 2}, {0, 2}}));
    EXPECT_EQ(chunks(9, 4), (Chunks{{3, 0}, {3, 3}, {3, 6}, {0, 9}}));
    EXPECT_EQ(chunks(7, 8), (Chunks{{1, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {0, 7}}));
    EXPECT_EQ(chunks(1, 2), (Chunks{{1, 0}, {0, 1}}));
    EXPECT_EQ(chunks(4, 4), (Chunks{{1, 0}, {1, 1}, {1, 2}, {1, 3}}));
}

TEST(InspectShard, StridedShardsAsInTheGoldenTable) {
    const auto runs = [](std::int64_t n) {
        Runs result;
        for (const auto& rank : inspect_shard({n}, {2, 2}, {StridedShard(0, 2), Shard(0)}).ranks)
            result.push_back(rank.runs[0]);
        return result;
    };
    EXPECT_EQ(runs(8), (Runs{{{0, 2}}, {{4, 6}}, {{2, 4}}, {{6, 8}}}));
    EXPECT_EQ(runs(10), (Runs{{{0, 3}}, {{5, 8}}, {{3, 5}}, {{8, 10}}}));
}

TEST(InspectShard, ReportsShapesAndRuns) {
    EXPECT_EQ(values(inspect_shard({10, 7}, {2, 2}, {Shard(0), Shard(-1)})), json::parse(R"j({"ranks": [
        {"rank": 0, "local_shape": [5, 4], "runs": [[[0, 5]], [[0, 4]]]},
        {"rank": 1, "local_shape": [5, 3], "runs": [[[0, 5]], [[4, 7]]]},
        {"rank": 2, "local_shape": [5, 4], "runs": [[[5, 10]], [[0, 4]]]},
        {"rank": 3, "local_shape": [5, 3], "runs": [[[5, 10]], [[4, 7]]]}]})j"));
    // Several runs, a dim cut empty, a replicated axis.
    EXPECT_EQ(values(inspect_shard({8, 1}, {2}, {StridedShard(0, 2)}))["ranks"][1],
              json::parse(R"j({"rank": 1, "local_shape": [4, 1], "runs": [[[2, 4], [6, 8]], [[0, 1]]]})j"));
    EXPECT_EQ(values(inspect_shard({8, 1}, {2}, {Shard(1)}))["ranks"][1],
              json::parse(R"j({"rank": 1, "local_shape": [8, 0], "runs": [[[0, 8]], []]})j"));
    EXPECT_EQ(values(inspect_shard({}, {1}, {Replicate()})),
              json::parse(R"j({"ranks": [{"rank": 0, "local_shape": [], "runs": []}]})j"));
}

TEST(InspectShard, RefusesPlacementsThatDoNotFit) {
    EXPECT_THAT(
        [] {
            inspect_shard({10, 7}, {2, 2}, {Shard(2), Replicate()});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("dim must be in [-2, 1]")));
    EXPECT_THAT(
        [] {
            inspect_shard({10, 7}, {2, 2}, {Shard(0)});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("a mesh with 2 axes: one for each axis")));
}

TEST(InspectRedistribute, ToAnotherDimMovesWhatIsNotThereYet) {
    // Rank r ends with 10 rows of its 2, 2, 2 or 1 columns, and had 3, 3, 3 or 1 of these rows before.
    EXPECT_EQ(values(inspect_redistribute({10, 7}, DType::float32, {4}, {Shard(0)}, {Shard(1)})),
              json::parse(R"j({"transforms": [{"transform": "all_to_all", "axis": 0, "from": "S(0)",
                             "to": "S(1)", "bytes_per_rank": [56, 56, 56, 36]}],
                             "bytes_per_rank": [56, 56, 56, 36]
})j"));
}

TEST(InspectRedistribute, SeveralAxesFromTheInnermostAndBack) {
    const json report = values(inspect_redistribute({10, 7}, DType::bfloat16, {2, 2}, {Shard(0), Shard(1)},
                                                    {Replicate(), Shard(0)}));
    // Columns come together: a padded slot of 5 x 4. Then rows: 5 x 7. Then each keeps its own half.
    EXPECT_EQ(report, json::parse(R"j({"transforms": [
        {"transform": "all_gather", "axis": 1, "from": "S(1)", "to": "R", "bytes_per_rank": [40, 40, 40, 40]
},
        {"transform": "all_gather", "axis": 0, "from": "S(0)", "to": "R", "bytes_per_rank": [70, 70, 70, 70]},
        {"transform": "local_chunk", "axis": 1, "from": "R", "to": "S(0)", "bytes_per_rank": [0, 0, 0, 0]}],
        "bytes_per_rank": [110, 110, 110, 110]
})j"));
}

TEST(InspectRedistribute, ReductionsAndNothingToDo) {
    const json scatter =
        values(inspect_redistribute({8}, DType::float32, {4}, {Partial()}, {Shard(0)}))["transforms"][0];
    EXPECT_EQ(scatter["transform"], "reduce_scatter");
    EXPECT_EQ(scatter["from"], "P(sum)");
    EXPECT_EQ(scatter["bytes_per_rank"], json({24, 24, 24, 24}));  // three terms of two elements
    EXPECT_TRUE(inspect_redistribute({8}, DType::float32, {4}, {Shard(0)}, {Shard(-1)}).transforms.empty());
    EXPECT_THAT([] { inspect_redistribute({8}, DType::float32, {4}, {Replicate()}, {Partial()}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("use R or S(dim)")));
    EXPECT_THAT([] { inspect_redistribute({8}, DType::float32, {4}, {Replicate()}, {Shard(1)}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("dim must be in [-1, 0]")));
}

TEST(InspectSchedule, ListsMakespanBubbleAndPeak) {
    const ScheduleReport report = inspect_schedule({.name = "gpipe", .ranks = 2, .microbatches = 2});
    EXPECT_EQ(
        to_json(report).dump(),
        R"j({"ranks":[["0F0","0F1","0B0","0B1"],["1F0","1F1","1B0","1B1"]],"makespan":9,"bubble":3,"peak":[2,2]})j");
    EXPECT_EQ(report.title, "GPipe: 2 ranks, 2 stages, 2 micro-batches");
    EXPECT_THAT(to_svg(report), HasSubstr("micro-batches; makespan 9 = ideal 6 + bubble 3 (33.3%)"));
}

TEST(InspectSchedule, LoweredListsHaveTheSameTimes) {
    const json report =
        values(inspect_schedule({.name = "1F1B", .ranks = 2, .microbatches = 2, .lowered = true}));
    EXPECT_EQ(
        report["ranks"][1],
        json::parse(
            R"j(["1UNSHARD", "1RECV_F0", "1F0", "1RECV_F1", "1B0", "1SEND_B0", "1F1", "1B1", "1SEND_B1", "1REDUCE_GRAD", "1RESHARD"])j"));
    EXPECT_EQ(report["makespan"], 9);
}

}  // namespace
}  // namespace tandem::inspect
