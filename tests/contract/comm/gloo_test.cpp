// Backend gloo over the loopback interface joins the contract: 1 to 4 ranks, each a thread with a mesh of its
// own.
#include <gmock/gmock.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/gloo/communicator.h"
#include "tests/contract/comm/checks.h"

namespace tandem::comm {
namespace {

using ::testing::HasSubstr;

#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
const std::vector<int> kGlooSizes = {1, 3};
#else
const std::vector<int> kGlooSizes = {1, 2, 3, 4};
#endif

// Runs `body` on so many ranks; what they throw.
template <typename Body>
std::vector<std::string> failures_of(int size, const Body& body) {
    const auto store = make_memory_store();
    const gloo::ListenAddress address{"127.0.0.1", "lo", "the test", true};
    std::mutex mutex;
    std::vector<std::string> failures;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank) {
        ranks.emplace_back([&, rank] {
            try {
                const auto world = gloo::make_world(*store, rank, size, address, Deadline::after_ms(20'000));
                try {
                    body(world);
                } catch (const std::exception& error) {
                    world->abort(error.what());
                    throw;
                }
            } catch (const std::exception& error) {
                const std::lock_guard lock(mutex);
                failures.push_back("rank " + std::to_string(rank) + ": " + error.what());
            }
        });
    }
    for (auto& rank : ranks) rank.join();
    return failures;
}

class Gloo : public ::testing::TestWithParam<contract::Case> {};

TEST_P(Gloo, Holds) {
    EXPECT_THAT(failures_of(GetParam().size, GetParam().check.run), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Contract, Gloo, ::testing::ValuesIn(contract::cases(kGlooSizes)),
                         [](const auto& info) { return info.param.name(); });

// Rank 0 waits for 1 and 2, rank 1 for 2, and rank 2 does not come: rank 1 is late through no fault of its
// own.
TEST(GlooDeadline, NamesWhoHoldsTheOthersUp) {
    const auto failures = failures_of(3, [](const contract::World& world) {
        Stream stream = Stream::make_inline();
        const Buffer one(16, "test");
        const Buffer two(16, "test");
        const P2POp ops[] = {{P2POp::Kind::recv, 2, two.span()}, {P2POp::Kind::recv, 1, one.span()}};
        world->barrier();
        if (world->rank() == 2) {
            while (!world->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            return;
        }
        if (world->rank() == 0) world->set_timeout(std::chrono::milliseconds(1500));
        world->p2p(std::span(ops, world->rank() == 0 ? 2 : 1), stream);
    });
    const std::string named = "p2p on 'world' with rank 2: not there after 1.5 s";
    EXPECT_THAT(failures,
                ::testing::UnorderedElementsAre(::testing::AllOf(HasSubstr("rank 0: "), HasSubstr("rank 2"),
                                                                 ::testing::Not(HasSubstr("rank 1"))),
                                                ::testing::AllOf(HasSubstr("rank 1: "), HasSubstr(named))));
}

}  // namespace
}  // namespace tandem::comm
