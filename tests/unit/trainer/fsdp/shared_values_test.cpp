// Values that ranks of one host share: nothing is gathered, whoever reads sees one version of every shard, and nobody writes
// while another rank reads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "common/comm/launch.h"
#include "common/ops/elementwise.h"
#include "trainer/fsdp/fully_shard.h"

namespace tandem::trainer {
namespace {

std::vector<Parameter> parameters_of_a_model() {
    std::vector<Parameter> parameters;
    for (const auto& [name, shape] :
         {std::pair<const char*, Shape>{"a", {9, 3}}, {"b", {1}}, {"c", {50, 7}}, {"d", {4}}})
        parameters.push_back({{name, shape}, shape, {}, {}});
    return parameters;
}

const std::vector<std::vector<int>> kGroups{{2, 0}, {1, 3}};

struct Rank {
    Rank(comm::Communicator& world, ReshardAfterForward reshard)
        : fsdp(parameters, kGroups, world, *solo, world, compute, {DType::bfloat16, reshard}) {}

    void fill_state(float value) {
        for (float& element : fsdp.state().tensor().values<float>()) element = value;
    }
    void write_state(float value) {
        fill_state(value);
        fsdp.state_written();
    }
    // As an optimizer does.
    void step(float value) {
        fill_state(value);
        for (const PartCopy& part : fsdp.rounded_for_step())
            for (bfloat16& element : part.copy.values<bfloat16>()) element = bfloat16(value);
        fsdp.step_done();
    }
    // Every element that forward and backward see.
    std::vector<float> pass(std::chrono::microseconds slowly) {
        std::vector<float> seen;
        const auto visit = [&](int group, int next) {
            fsdp.unshard(group, next);
            std::this_thread::sleep_for(slowly);
            for (const int member : kGroups[static_cast<std::size_t>(group)]) {
                const Tensor& value = parameters[static_cast<std::size_t>(member)].value;
                for (const bfloat16 element : value.values<bfloat16>())
                    seen.push_back(static_cast<float>(element));
            }
        };
        visit(0, 1);
        fsdp.after_forward(0);
        visit(1, GroupHooks::kNone);
        fsdp.after_forward(1);
        visit(1, 0);
        visit(0, GroupHooks::kNone);
        fsdp.finish();
        return seen;
    }

    std::vector<Parameter> parameters = parameters_of_a_model();
    std::shared_ptr<comm::Communicator> solo = comm::solo();
    Stream compute = Stream::make_inline();
    FullyShard fsdp;
};

constexpr std::size_t kSeen = 2 * (9 * 3 + 1 + 50 * 7 + 4);

class SharedValues : public ::testing::TestWithParam<std::pair<int, int>> {};  // ranks, reshard over

TEST_P(SharedValues, EveryPassSeesOneVersion) {
    const auto [ranks, reshard] = GetParam();
    comm::run_threads(ranks, [&, reshard = reshard](std::shared_ptr<comm::Communicator> world) {
        Rank rank(*world, reshard == 0 ? ReshardAfterForward(true) : ReshardAfterForward(reshard));
        for (int version = 1; version <= 24; ++version) {
            // One rank lags behind in a pass, another one in writing.
            const bool reads_late = version % world->size() == world->rank();
            const bool writes_late = (version + 1) % world->size() == world->rank();
            if (writes_late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            const auto value = static_cast<float>(version);
            const bool anew = version % 4 == 1;
            if (anew && version % 3 == 0) rank.fsdp.free_buffers();
            anew ? rank.write_state(value) : rank.step(value);
            const std::chrono::microseconds slowly(reads_late ? 500 : 0);
            EXPECT_EQ(rank.pass(slowly), std::vector<float>(kSeen, value)) << "rank " << world->rank();
            if (version % 5 == 0) {
                EXPECT_EQ(rank.pass(slowly), std::vector<float>(kSeen, value));
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedValues,
                         ::testing::Values(std::pair{2, 0}, std::pair{3, 0}, std::pair{4, 0}, std::pair{4, 2},
                                           std::pair{2, 1}));

TEST(SharedValues, LieInOnePlaceForAllRanks) {
    std::vector<std::atomic<const std::byte*>> first(4);
    comm::run_threads(2, [&](std::shared_ptr<comm::Communicator> world) {
        Rank rank(*world, true);
        rank.fsdp.unshard(0, 1);
        rank.fsdp.unshard(1, GroupHooks::kNone);
        for (std::size_t i = 0; i < first.size(); ++i) {
            const std::byte* own = rank.parameters[i].value.raw();
            const std::byte* none = nullptr;
            if (first[i].compare_exchange_strong(none, own)) continue;
            EXPECT_EQ(own, none);
        }
        rank.fsdp.finish();
    });
}

// Another state of the layout has values of its own, which are gathered; the shared ones stand.
TEST(SharedValues, AnotherStateIsReadInTheirPlace) {
    comm::run_threads(2, [&](std::shared_ptr<comm::Communicator> world) {
        Rank rank(*world, true);
        FlatState other(rank.compute, rank.fsdp.layout().numel(), DType::bfloat16, "reference",
                        rank.fsdp.memory());
        for (bfloat16& element : other.tensor().values<bfloat16>()) element = bfloat16(5.0f);
        rank.write_state(3);
        EXPECT_EQ(rank.pass({}), std::vector<float>(kSeen, 3.0f));
        rank.fsdp.gather_from(other);
        EXPECT_EQ(rank.pass({}), std::vector<float>(kSeen, 5.0f));
        rank.fsdp.gather_from(rank.fsdp.state());
        EXPECT_EQ(rank.pass({}), std::vector<float>(kSeen, 3.0f));
    });
}

}  // namespace
}  // namespace tandem::trainer
