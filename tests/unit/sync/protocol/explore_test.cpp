// Every interleaving of pushes with a few faults, and long random walks with many, against what hardening a push
// promises (World::broken_promise). TANDEM_EXPLORE_STATES raises the number of states of each setting.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <unordered_map>
#include <utility>

#include "common/ops/batched_copy.h"
#include "tests/unit/sync/protocol/world.h"

namespace tandem::sync::protocol {
namespace {

struct Hash {
    std::size_t operator()(const ops::Checksum& sum) const { return sum.low; }
};
using Found = std::unordered_map<ops::Checksum, std::pair<ops::Checksum, std::string>,
                                 Hash>;  // and from where, by what

ops::Checksum key_of(const World& world) {
    const std::string bytes = world.bytes();
    return ops::checksum({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

std::string path_to(const Found& found, ops::Checksum key) {
    std::string path;
    for (auto at = found.find(key); !at->second.second.empty(); at = found.find(at->second.first))
        path = "  " + at->second.second + "\n" + path;
    return path;
}

std::size_t limit() {
    const char* text = std::getenv("TANDEM_EXPLORE_STATES");
    return text == nullptr ? 250'000 : std::strtoull(text, nullptr, 10);
}

const char* name_of(Mode mode) {
    return std::array{"gather", "direct", "delta", "alias"}[static_cast<std::size_t>(mode)];
}
std::string name_of(const Setting& setting) {
    return fmt::format("{}, {} trainers, {} engine ranks, {} pushes, {} faults", name_of(setting.mode),
                       setting.trainers, setting.engines, setting.pushes, setting.faults);
}

// Breadth first, so that the first path to a broken promise is among the shortest.
void explore(const Setting& setting) {
    Found found;
    std::deque<World> open{World(setting)};
    found[key_of(open.front())] = {};
    std::vector<std::pair<std::string, World>> next;
    while (!open.empty() && found.size() < limit()) {
        const World world = std::move(open.front());
        open.pop_front();
        const ops::Checksum key = key_of(world);
        if (const std::string promise = world.broken_promise(); !promise.empty()) {
            ADD_FAILURE() << name_of(setting) << ": " << promise << ", after\n"
                          << path_to(found, key) << world.to_string();
            return;
        }
        world.successors(next);
        for (auto& [event, after] : next) {
            if (found.try_emplace(key_of(after), key, event).second) open.push_back(std::move(after));
        }
    }
    std::printf("%s: %zu states%s\n", name_of(setting).c_str(), found.size(),
                open.empty() ? ", all of them" : ", the nearest");
}

void walk(const Setting& setting, int walks, int steps) {
    std::mt19937_64 random(7);
    std::vector<std::pair<std::string, World>> next;
    for (int w = 0; w < walks; ++w) {
        World world(setting);
        std::string path;
        for (int step = 0; step < steps; ++step) {
            world.successors(next);
            if (next.empty()) break;
            auto& [event, after] = next[random() % next.size()];
            path += "  " + event + "\n";
            world = after;
            const std::string promise = world.broken_promise();
            ASSERT_EQ(promise, "") << name_of(setting) << ", after\n" << path << world.to_string();
        }
    }
}

class Protocol : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Protocol,
                         testing::Values(Mode::gather, Mode::direct, Mode::delta, Mode::alias),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Protocol, OneTrainerAndOneEngineRank) {
    explore({GetParam(), 1, 1, 2, 5});
}
TEST_P(Protocol, OneTrainerAndTwoEngineRanks) {
    explore({GetParam(), 1, 2, 2, 3});
}
TEST_P(Protocol, OneTrainerAndThreeEngineRanks) {
    explore({GetParam(), 1, 3, 1, 3});
}
TEST_P(Protocol, TwoTrainersAndOneEngineRank) {
    explore({GetParam(), 2, 1, 1, 3});
}
TEST_P(Protocol, TwoTrainersAndTwoEngineRanks) {
    explore({GetParam(), 2, 2, 1, 2});
}
TEST_P(Protocol, LongWalksWithManyFaults) {
    walk({GetParam(), 2, 3, 6, 40}, 300, 300);
}

}  // namespace
}  // namespace tandem::sync::protocol
