// Every schedule of PyTorch's (tests/golden/make_schedules.py) against ours: compute lists and lowered lists, and what is refused.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "tests/unit/trainer/pipeline/lists.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {
namespace {

using nlohmann::json;

const json& golden() {
    static const json data = [] {
        std::ifstream file(TANDEM_SOURCE_DIR "/tests/golden/data/schedules.json");
        return json::parse(file);
    }();
    return data;
}

std::string hash_of(const std::vector<ActionList>& ranks) {
    std::string text;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        text.append(rank == 0 ? "" : "\n").append(text_of(ranks[rank]));
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// Neighbouring RESHARDs by their stage, as the golden has them.
std::vector<ActionList> sorted_reshards(std::vector<ActionList> ranks) {
    for (ActionList& list : ranks)
        for (std::size_t i = 1; i < list.size(); ++i)
            for (std::size_t j = i;
                 j > 0 && list[j].kind == ActionKind::reshard && list[j - 1].kind == ActionKind::reshard &&
                 list[j].stage < list[j - 1].stage;
                 --j)
                std::swap(list[j], list[j - 1]);
    return ranks;
}

// Of one case: "refused", or the two hashes; GPipe and 1F1B are not lowered by PyTorch.
json answer(const std::string& name, int ranks, int stages, int microbatches) {
    Schedule schedule;
    try {
        schedule = make_schedule(name, ranks, stages, microbatches);
    } catch (const BadInput&) {
        return "refused";
    }
    const Schedule lowered = lower(schedule);
    check_lowered(lowered, schedule);
    const bool one_stage = name == "GPipe" || name == "1F1B";
    return {hash_of(schedule.ranks), one_stage ? "" : hash_of(sorted_reshards(lowered.ranks))};
}

TEST(GoldenSchedules, EveryListIsPyTorchs) {
    int admitted = 0, refused = 0;
    for (const auto& [name, shapes] : golden()["hashes"].items()) {
        for (const auto& [shape, cases] : shapes.items()) {
            const int ranks = std::stoi(shape), stages = std::stoi(shape.substr(shape.find('x') + 1));
            for (std::size_t i = 0; i < cases.size(); ++i) {
                const json ours = answer(name, ranks, stages, static_cast<int>(i) + 1);
                EXPECT_EQ(ours, cases[i]) << name << " " << shape << " M " << i + 1;
                (ours == "refused" ? refused : admitted)++;
            }
        }
    }
    EXPECT_EQ(golden()["torch"], "2.13.0");
    EXPECT_EQ(admitted + refused, 7 * 4 * 4 * 32);
    EXPECT_GT(admitted, 1000);
    EXPECT_GT(refused, 1000);
}

TEST(GoldenSchedules, AFewInFull) {
    for (const json& list : golden()["lists"]) {
        const Schedule schedule =
            make_schedule(list["name"], list["pp"], list["stages"], list["microbatches"]);
        ASSERT_EQ(schedule.ranks.size(), list["ranks"].size());
        for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
            EXPECT_EQ(text_of(schedule.ranks[rank]), list["ranks"][rank]) << list["name"] << " rank " << rank;
    }
}

// Appendix A of the reference that these were collected in: transfers put into a compute list, the same in PyTorch 2.13 and 2.15.
TEST(GoldenSchedules, TransfersOfTwoRanks) {
    const Schedule schedule = make_schedule("Interleaved1F1B", 2, 2, 4);
    const auto ranks = add_send_recv(schedule.ranks, schedule.rank_of_stage, schedule.microbatches);
    EXPECT_EQ(text_of(ranks[0]),
              "0F0 0SEND_F0 2RECV_F0 0F1 0SEND_F1 2RECV_F1 2F0 2SEND_F0 2F1 2SEND_F1 2RECV_B0 0F2 0SEND_F2 "
              "2B0 2SEND_B0 "
              "2RECV_B1 0F3 0SEND_F3 2RECV_F2 2B1 2SEND_B1 0RECV_B0 2F2 2SEND_F2 2RECV_F3 0B0 0RECV_B1 2F3 "
              "2SEND_F3 0B1 "
              "2RECV_B2 2B2 2SEND_B2 2RECV_B3 2B3 2SEND_B3 0RECV_B2 0B2 0RECV_B3 0B3");
}

}  // namespace
}  // namespace tandem::pipeline
