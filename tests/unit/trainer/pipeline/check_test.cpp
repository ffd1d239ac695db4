// The checker against every mutation of small lists, with a machine as its oracle that really moves tensors.
#include "trainer/pipeline/check.h"

#include <gmock/gmock.h>

#include <cstddef>
#include <map>
#include <set>
#include <tuple>

#include "common/error.h"
#include "tests/unit/trainer/pipeline/lists.h"
#include "trainer/pipeline/lower.h"

namespace tandem::pipeline {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Kind = ActionKind;

// Runs lists as an executor would: SEND and RECV meet (nothing is buffered) and carry what they carry, whatever the receiver takes
// it for. Knows the mathematics of a step, and nothing of the checker.
class Machine {
  public:
    explicit Machine(const Schedule& s) : s_(s), next_(s.ranks.size()), unsharded_(s.rank_of_stage.size()) {}

    // Whether all ends, with every gradient once, right, and reduced.
    bool run() {
        for (bool progress = true; progress && good_;) {
            progress = false;
            for (std::size_t rank = s_.ranks.size();
                 rank-- > 0;)  // backwards: another order than the checker's
                while (good_ && step(rank)) progress = true;
        }
        for (std::size_t rank = 0; rank < s_.ranks.size(); ++rank)
            good_ &= next_[rank] == s_.ranks[rank].size();
        for (const bool unsharded : unsharded_) good_ &= !unsharded;
        good_ &= reduced_.size() == s_.rank_of_stage.size() && tensors_.empty();
        return good_;
    }

  private:
    // A tensor on a rank: an output of F ('y'), what F keeps for its backward ('k'), a gradient of a stage's input ('g'), what I
    // keeps for W ('w').
    using Tensor = std::tuple<int, char, int, int>;  // rank, what, stage that made it, micro-batch

    bool step(std::size_t rank) {
        if (next_[rank] == s_.ranks[rank].size()) return false;
        const Action& action = s_.ranks[rank][next_[rank]];
        if (action.kind == Kind::send_f || action.kind == Kind::send_b) return false;  // its RECV does both
        if (action.kind == Kind::recv_f || action.kind == Kind::recv_b) return receive(rank, action);
        ++next_[rank];
        for (const Action& part : parts_of(action)) compute(static_cast<int>(rank), part);
        return true;
    }

    bool receive(std::size_t rank, const Action& recv) {
        const bool forward = recv.kind == Kind::recv_f;
        const int other = recv.stage + (forward ? -1 : 1);
        if (other < 0 || other >= s_.stages()) return good_ = false;
        const auto from = static_cast<std::size_t>(s_.rank_of_stage[static_cast<std::size_t>(other)]);
        if (from == rank) return good_ = false;
        if (next_[from] == s_.ranks[from].size()) return false;
        const Action& send = s_.ranks[from][next_[from]];
        if (send.kind != Kind::send_f && send.kind != Kind::send_b) return false;
        const int target = send.stage + (send.kind == Kind::send_f ? 1 : -1);
        if (target < 0 || target >= s_.stages()) return good_ = false;
        if (s_.rank_of_stage[static_cast<std::size_t>(target)] != static_cast<int>(rank)) return false;
        ++next_[from];
        ++next_[rank];
        const char what = send.kind == Kind::send_f ? 'y' : 'g';
        good_ &= tensors_.erase({static_cast<int>(from), what, send.stage, send.microbatch}) == 1;
        good_ &= what == (forward ? 'y' : 'g') && send.stage == other && send.microbatch == recv.microbatch;
        good_ &= tensors_.insert({static_cast<int>(rank), what, send.stage, send.microbatch}).second;
        return true;
    }

    void compute(int rank, const Action& a) {
        const auto stage = static_cast<std::size_t>(a.stage);
        if (a.kind == Kind::unshard || a.kind == Kind::reshard) {
            good_ &= unsharded_[stage] == (a.kind == Kind::reshard);
            unsharded_[stage] = a.kind == Kind::unshard;
            return;
        }
        good_ &= unsharded_[stage] && s_.rank_of_stage[stage] == rank;
        const auto use = [&](char what, int of_stage) {
            good_ &= tensors_.erase({rank, what, of_stage, a.microbatch}) == 1;
        };
        const auto make = [&](char what) {
            good_ &= tensors_.insert({rank, what, a.stage, a.microbatch}).second;
        };
        const bool last = a.stage == s_.stages() - 1;
        if (a.kind == Kind::reduce_grad) {
            good_ &= gradients_[a.stage].size() == static_cast<std::size_t>(s_.microbatches);
            good_ &= reduced_.insert(a.stage).second;
        } else if (a.kind == Kind::forward) {
            if (a.stage > 0) use('y', a.stage - 1);
            make('k');
            if (!last) make('y');
        } else if (a.kind == Kind::full_backward || a.kind == Kind::backward_input) {
            if (!last) use('g', a.stage + 1);
            use('k', a.stage);
            if (a.stage > 0) make('g');
            if (a.kind == Kind::backward_input) make('w');
        }
        if (a.kind == Kind::backward_weight) use('w', a.stage);
        if (a.kind == Kind::full_backward || a.kind == Kind::backward_weight)
            good_ &= gradients_[a.stage].insert(a.microbatch).second && !reduced_.contains(a.stage);
    }

    const Schedule& s_;
    std::vector<std::size_t> next_;
    std::vector<bool> unsharded_;
    std::set<Tensor> tensors_;
    std::map<int, std::set<int>> gradients_;
    std::set<int> reduced_;
    bool good_ = true;
};

bool runs(const Schedule& lowered) {
    return Machine(lowered).run();
}

// What the checker says against it; empty: nothing.
std::string complaint(const Schedule& lowered, const Schedule& compute) {
    try {
        check_lowered(lowered, compute);
    } catch (const BadInput& error) {
        return error.what();
    }
    return "";
}

struct Case {
    const char* name;
    int ranks, stages, microbatches;
};

std::vector<Case> small_cases() {
    return {{"GPipe", 2, 1, 2},         {"1F1B", 3, 1, 3},          {"Interleaved1F1B", 2, 2, 2},
            {"LoopedBFS", 2, 2, 2},     {"LoopedBFS", 1, 4, 2},     {"InterleavedZeroBubble", 2, 2, 2},
            {"ZBVZeroBubble", 2, 2, 2}, {"ZBVZeroBubble", 3, 2, 1}, {"DualPipeV", 2, 2, 4}};
}

std::vector<Case> larger_cases() {
    return {{"1F1B", 4, 1, 8},      {"Interleaved1F1B", 4, 2, 8},       {"Interleaved1F1B", 2, 4, 4},
            {"LoopedBFS", 3, 3, 4}, {"InterleavedZeroBubble", 3, 3, 6}, {"ZBVZeroBubble", 4, 2, 8},
            {"DualPipeV", 4, 2, 8}};
}

// Calls `mutated(lists, what)` for one change after the other.
template <typename Change, typename Mutated>
void each_place(const Schedule& lowered, const Change& change, const Mutated& mutated) {
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        for (std::size_t at = 0; at < lowered.ranks[rank].size(); ++at) {
            Schedule lists = lowered;
            change(lists.ranks[rank], at);
            mutated(lists,
                    fmt::format("rank {}, action {} {}", rank, at, to_string(lowered.ranks[rank][at])));
        }
    }
}

class EveryMutation : public testing::TestWithParam<Case> {
  protected:
    Schedule compute =
        make_schedule(GetParam().name, GetParam().ranks, GetParam().stages, GetParam().microbatches);
    Schedule lowered = lower(compute);
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
    const Case& c = info.param;
    return fmt::format("{}_{}x{}_{}", c.name[0] == '1' ? "OneF1B" : c.name, c.ranks, c.stages,
                       c.microbatches);
}

using EveryMutationOfSmallLists = EveryMutation;
using EveryMutationOfLargerLists = EveryMutation;
INSTANTIATE_TEST_SUITE_P(All, EveryMutationOfSmallLists, testing::ValuesIn(small_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(All, EveryMutationOfLargerLists, testing::ValuesIn(larger_cases()), case_name);

void expect_deletions_and_copies_are_caught(const Schedule& lowered, const Schedule& compute) {
    ASSERT_EQ(complaint(lowered, compute), "");
    ASSERT_TRUE(runs(lowered));
    const auto caught = [&](const Schedule& lists, const std::string& what) {
        EXPECT_NE(complaint(lists, compute), "") << what;
        EXPECT_FALSE(runs(lists)) << what;
    };
    each_place(
        lowered,
        [](ActionList& list, std::size_t at) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); },
        caught);
    each_place(
        lowered,
        [](ActionList& list, std::size_t at) {
            list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), Action(list[at]));
        },
        caught);
}

TEST_P(EveryMutationOfSmallLists, DeletedAndRepeatedActionsAreCaught) {
    expect_deletions_and_copies_are_caught(lowered, compute);
}

TEST_P(EveryMutationOfLargerLists, DeletedAndRepeatedActionsAreCaught) {
    expect_deletions_and_copies_are_caught(lowered, compute);
}

// A copy anywhere else in the list of any rank.
TEST_P(EveryMutationOfSmallLists, CopiesElsewhereAreCaught) {
    for (const ActionList& from : lowered.ranks)
        for (const Action& copy : from)
            each_place(
                lowered,
                [&](ActionList& list, std::size_t at) {
                    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), copy);
                },
                [&](const Schedule& lists, const std::string& what) {
                    EXPECT_NE(complaint(lists, compute), "") << to_string(copy) << " before " << what;
                });
}

// Of two exchanged actions of a rank. Some exchanges do no harm (two UNSHARDs; a SEND and what does not wait for it): the checker
// passes exactly those that run right and compute in the schedule's order. Returns whether it was caught.
bool judge_exchange(const Schedule& lowered, const Schedule& compute, std::size_t rank, std::size_t i,
                    std::size_t j) {
    Schedule lists = lowered;
    std::swap(lists.ranks[rank][i], lists.ranks[rank][j]);
    const std::string said = complaint(lists, compute);
    EXPECT_EQ(said.empty(), compute_of(lists).ranks == compute.ranks && runs(lists))
        << "rank " << rank << " " << to_string(lists.ranks[rank][j]) << " <-> "
        << to_string(lists.ranks[rank][i]) << ": " << said;
    return !said.empty();
}

TEST_P(EveryMutationOfSmallLists, ExchangedActionsAreCaughtOrDoNoHarm) {
    int caught = 0, harmless = 0;
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank)
        for (std::size_t j = 0; j < lowered.ranks[rank].size(); ++j)
            for (std::size_t i = 0; i < j; ++i)
                (judge_exchange(lowered, compute, rank, i, j) ? caught : harmless)++;
    EXPECT_GT(caught, 5 * harmless);
}

TEST_P(EveryMutationOfLargerLists, ExchangedNeighboursAreCaughtOrDoNoHarm) {
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank)
        for (std::size_t j = 1; j < lowered.ranks[rank].size(); ++j)
            judge_exchange(lowered, compute, rank, j - 1, j);
}

TEST_P(EveryMutationOfSmallLists, ActionsExchangedBetweenRanksAreCaught) {
    for (std::size_t a = 0; a < lowered.ranks.size(); ++a)
        for (std::size_t b = 0; b < a; ++b)
            for (std::size_t i = 0; i < lowered.ranks[a].size(); ++i)
                for (std::size_t j = 0; j < lowered.ranks[b].size(); ++j) {
                    Schedule lists = lowered;
                    std::swap(lists.ranks[a][i], lists.ranks[b][j]);
                    EXPECT_NE(complaint(lists, compute), "")
                        << to_string(lowered.ranks[a][i]) << " <-> " << to_string(lowered.ranks[b][j]);
                }
}

// Also where fewer or more stages may be unsharded at once.
TEST(LoweredLists, AreProvenForEveryNumberOfActiveStages) {
    for (const Case& c : larger_cases()) {
        const Schedule compute = make_schedule(c.name, c.ranks, c.stages, c.microbatches);
        for (int active = 2; active <= 5; ++active) {
            const Schedule lowered = lower(compute, active);
            EXPECT_EQ(complaint(lowered, compute), "") << c.name;
            EXPECT_TRUE(runs(lowered)) << c.name;
            EXPECT_NO_THROW(check_lowered(lowered, compute, 1));
        }
    }
}

// Two ranks, one stage each, one micro-batch.
struct TwoRanks {
    Schedule compute = make_schedule("GPipe", 2, 1, 1);
    std::string first = "0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD";
    std::string second = "1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1RESHARD";

    std::string complaint() const {
        Schedule lowered = compute;
        lowered.ranks = {list_of(first), list_of(second)};
        return pipeline::complaint(lowered, compute);
    }
};

TEST(CheckOfLoweredLists, SaysWhereAndWhat) {
    EXPECT_EQ(TwoRanks{}.complaint(), "");
    const auto first = [](const std::string& list, const std::string& part) {
        TwoRanks lists;
        lists.first = list;
        EXPECT_THAT(lists.complaint(), HasSubstr(part)) << list;
    };
    const auto second = [](const std::string& list, const std::string& part) {
        TwoRanks lists;
        lists.second = list;
        EXPECT_THAT(lists.complaint(), HasSubstr(part)) << list;
    };
    first("0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD", "rank 0, action 0 (0F0): stage 0 is sharded");
    first("0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD", "rank 0: stage 0 is still unsharded in the end");
    first("0UNSHARD 0UNSHARD 0F0", "rank 0: compute action 1 is nothing, where the schedule has 0B0");
    first("0UNSHARD 0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0",
          "rank 0, action 1 (0UNSHARD): the stage is unsharded already");
    first("0RESHARD 0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0",
          "rank 0, action 0 (0RESHARD): the stage is sharded already");
    first("0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0RESHARD", "rank 0: stage 0 has no REDUCE_GRAD");
    first("0UNSHARD 0F0 0SEND_F0 0RECV_B0 0REDUCE_GRAD 0B0 0RESHARD",
          "(0REDUCE_GRAD): 0 of 1 micro-batches have their gradients");
    first("0UNSHARD 0F0 0SEND_F0 0B0 0RECV_B0 0REDUCE_GRAD 0RESHARD",
          "rank 0, action 3 (0B0): its input has not been received");
    first("0UNSHARD 0F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD", "rank 0: 0SEND_F0 is missing");
    first("0UNSHARD 0SEND_F0 0F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD", "(0SEND_F0): it has not been computed");
    first("0UNSHARD 0F0 0SEND_F0 0RECV_B0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD",
          "(0RECV_B0): it has been received already");
    first("0UNSHARD 0F0 0SEND_B0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD",
          "(0SEND_B0): that neighbour of the stage is");
    first("0UNSHARD 0F0 0SEND_F0 1RECV_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD",
          "(1RECV_F0): stage 1 is rank 1's");
    first("0UNSHARD 0F0 0SEND_F3 0RECV_B0 0B0", "(0SEND_F3): there are micro-batches 0 to 0");
    first("7UNSHARD 0F0 0B0", "(7UNSHARD): there are stages 0 to 1");
    first("0UNSHARD 0B0 0F0", "rank 0: compute action 0 is 0B0, where the schedule has 0F0");
    first("0UNSHARD 0F0 0RECV_B0 0SEND_F0 0B0 0REDUCE_GRAD 0RESHARD",
          "rank 0, action 2 (0RECV_B0): it waits forever where 0 transfers");
    second("1UNSHARD 1RECV_F0 1F0 1B0 1REDUCE_GRAD 1RESHARD", "rank 1: 1SEND_B0 is missing");
}

TEST(CheckOfLoweredLists, AreOfAScheduleThatRuns) {
    const Schedule compute = make_schedule("GPipe", 1, 1, 1), lowered = lower(compute);
    EXPECT_THAT(complaint(lowered, make_schedule("GPipe", 1, 1, 2)),
                HasSubstr("are of other ranks, stages or micro-batches"));
    Schedule twice = compute;
    twice.ranks[0].push_back(twice.ranks[0].back());
    EXPECT_THAT(complaint(lowered, twice), HasSubstr("rank 0, action 2 (0B0): stage 0 has done that"));
    EXPECT_THAT(complaint({}, {}), HasSubstr("the schedule has nothing to do"));
}

TEST(CheckOfLoweredLists, TransfersOfTwoRanksHaveOneOrder) {
    const Schedule compute = make_schedule("GPipe", 2, 1, 2);
    Schedule lowered = compute;
    lowered.ranks = {
        list_of("0UNSHARD 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0RESHARD"),
        list_of("1UNSHARD 1RECV_F1 1RECV_F0 1F0 1F1 1B0 1SEND_B0 1B1 1SEND_B1 1REDUCE_GRAD 1RESHARD")};
    EXPECT_THAT(
        complaint(lowered, compute),
        HasSubstr(
            "rank 1, action 1 (1RECV_F1): rank 0 sends 0SEND_F0 here: SENDs and RECVs of two ranks must"));
}

// Both send first: that needs room for one on the way, as torch's deferral of RECVs does.
TEST(CheckOfLoweredLists, WaitsDependOnTheRoomOfChannels) {
    const Schedule compute = make_schedule("1F1B", 2, 1, 2);
    Schedule lowered = compute;
    lowered.ranks = {
        list_of("0UNSHARD 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0RESHARD"),
        list_of("1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_GRAD 1RESHARD")};
    EXPECT_THAT(complaint(lowered, compute),
                HasSubstr("(0SEND_F1): it waits forever where 0 transfers from one rank to another"));
    EXPECT_FALSE(runs(lowered));
    EXPECT_NO_THROW(check_lowered(lowered, compute, 1));
    EXPECT_NO_THROW(check_lowered(lowered, compute, 2));
}

TEST(CheckOfComputeLists, SaysWhereAndWhat) {
    const auto refused = [](std::vector<std::string> ranks, const std::string& part) {
        Schedule schedule = make_schedule("GPipe", static_cast<int>(ranks.size()), 1, 2);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) schedule.ranks[rank] = list_of(ranks[rank]);
        EXPECT_THAT([&] { check_compute(schedule); }, ThrowsMessage<BadInput>(HasSubstr(part))) << part;
    };
    refused({"0F0 0F1 0B0 0B1 0B1"},
            "rank 0, action 4 (0B1): stage 0 has done that with micro-batch 1 already");
    refused({"0F0 0F0 0B0 0B1"}, "rank 0, action 1 (0F0): stage 0 has done that");
    refused({"0F0 0B1 0F1 0B0"}, "rank 0, action 1 (0B1): it comes before its F");
    refused({"0F0 0F1 0W0 0I0 0B1"}, "rank 0, action 2 (0W0): it comes before its I");
    refused({"0F0 0F1 0I0 0I1 0W0"}, "rank 0: stage 0 has no W of micro-batch 1");
    refused({"0F0 0F1 0I0 0W0 0I0"}, "(0I0): stage 0 has done that");
    refused({"0F0 0I0 0W0 0W0 0F1"}, "(0W0): stage 0 has done that");
    refused({"0F0 0I0 0B0 0F1"}, "(0B0): stage 0 has done that");
    refused({"0F0 0F1 0B0"}, "3 actions are too few for 1 stages and 2 micro-batches");
    refused({"0F0 0F1 0I0 0W0"}, "rank 0: stage 0 has no B, or I and W of micro-batch 1");
    refused({"0F0 0I0 0W0 0F2 0B2"}, "(0F2): there are micro-batches 0 to 1");
    refused({"0F0 0F1 0B0 0SEND_F0"}, "(0SEND_F0): it is no compute action");
    refused({"0F0 0F1 0B0 1B1"}, "(1B1): there are stages 0 to 0");
    refused({"0F0 0F1 0B0 0B1", "1F0 0B1 1F1 1B0"}, "rank 1, action 1 (0B1): stage 0 is rank 0's");
    refused({"0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"},
            "rank 0, action 1 (0B0): it waits forever for another stage");
}

TEST(CheckOfComputeLists, PassesEverySchedule) {
    for (const Case& c : larger_cases())
        EXPECT_NO_THROW(check_compute(make_schedule(c.name, c.ranks, c.stages, c.microbatches))) << c.name;
}

}  // namespace
}  // namespace tandem::pipeline
