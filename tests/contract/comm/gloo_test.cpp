// Backend gloo over the loopback interface joins the contract: 1 to 4 ranks, each a thread with a mesh of its
// own.
#include <gtest/gtest.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "common/comm/gloo/communicator.h"
#include "tests/contract/comm/checks.h"

namespace tandem::comm {
namespace {

#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
const std::vector<int> kSizes = {1, 3};
#else
const std::vector<int> kSizes = {1, 2, 3, 4};
#endif

class Gloo : public ::testing::TestWithParam<contract::Case> {};

TEST_P(Gloo, Holds) {
    const auto store = make_memory_store();
    const gloo::ListenAddress address{"127.0.0.1", "lo", "the test", true};
    std::mutex mutex;
    std::vector<std::string> failures;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < GetParam().size; ++rank) {
        ranks.emplace_back([&, rank] {
            try {
                const auto world =
                    gloo::make_world(*store, rank, GetParam().size, address, Deadline::after_ms(20'000));
                try {
                    GetParam().check.run(world);
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
    for (const auto& failure : failures) ADD_FAILURE() << failure;
}

INSTANTIATE_TEST_SUITE_P(Contract, Gloo, ::testing::ValuesIn(contract::cases(kSizes)),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace tandem::comm
