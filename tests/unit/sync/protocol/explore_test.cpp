// Every interleaving of pushes with a few faults, and long random walks with many, against what hardening a
// push promises (World::broken_promise). TANDEM_EXPLORE_STATES sets the number of states of each setting,
// TANDEM_EXPLORE_FAULTS how many faults it has more.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <type_traits>
#include <utility>

#include "common/ops/batched_copy.h"
#include "tests/unit/sync/protocol/world.h"

namespace tandem::sync::protocol {
namespace {

// A world in fewer bytes, in a queue of millions: most of them are 0.
static_assert(std::is_trivially_copyable_v<World>);
std::string squeezed(const World& world) {
    const auto* bytes = reinterpret_cast<const char*>(&world);
    std::string out;
    for (std::size_t at = 0; at < sizeof(World);) {
        std::size_t zeros = 0, others = 0;
        while (at + zeros < sizeof(World) && zeros < 255 && bytes[at + zeros] == 0) ++zeros;
        at += zeros;
        while (at + others < sizeof(World) && others < 255 && bytes[at + others] != 0) ++others;
        out.push_back(static_cast<char>(zeros));
        out.push_back(static_cast<char>(others));
        out.append(bytes + at, others);
        at += others;
    }
    return out;
}
World unsqueezed(const std::string& in) {
    World world{Setting()};
    auto* bytes = reinterpret_cast<char*>(&world);
    std::memset(static_cast<void*>(&world), 0, sizeof(World));
    for (std::size_t at = 0; at < in.size();) {
        bytes += static_cast<unsigned char>(in[at]);
        const std::size_t others = static_cast<unsigned char>(in[at + 1]);
        std::memcpy(bytes, in.data() + at + 2, others);
        bytes += others;
        at += 2 + others;
    }
    return world;
}

std::uint64_t key_of(const World& world) {
    const std::string bytes = world.bytes();
    const std::uint64_t key =
        ops::checksum({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}).low;
    return key == 0 ? 1 : key;
}

// The worlds that were found: their keys in a table with open places, and how each was come to. Some 28 bytes
// each.
class Found {
  public:
    static constexpr std::uint32_t kStart = 0xffffffff;

    // False: it was found before.
    bool add(std::uint64_t key, std::uint32_t from, const std::string& event) {
        if (steps_.size() * 3 >= keys_.size() * 2) grow();
        if (!put(key)) return false;
        const auto known = std::find(events_.begin(), events_.end(), event);
        steps_.push_back({from, static_cast<std::uint32_t>(known - events_.begin())});
        if (known == events_.end()) events_.push_back(event);
        return true;
    }
    std::size_t size() const { return steps_.size(); }
    std::size_t bytes() const {
        return keys_.capacity() * sizeof(keys_[0]) + steps_.capacity() * sizeof(Step);
    }
    // The events that led to the world that was found as number `at`.
    std::string path_to(std::uint32_t at) const {
        std::string path;
        for (; steps_[at].from != kStart; at = steps_[at].from)
            path = "  " + events_[steps_[at].event] + "\n" + path;
        return path;
    }

  private:
    struct Step {
        std::uint32_t from, event;
    };
    bool put(std::uint64_t key) {
        std::size_t at = key & (keys_.size() - 1);
        while (keys_[at] != 0 && keys_[at] != key) at = (at + 1) & (keys_.size() - 1);
        if (keys_[at] == key) return false;
        keys_[at] = key;
        return true;
    }
    void grow() {
        std::vector<std::uint64_t> old(keys_.size() * 2);
        old.swap(keys_);
        for (const std::uint64_t key : old) {
            if (key != 0) put(key);
        }
    }

    std::vector<std::uint64_t> keys_ = std::vector<std::uint64_t>(1024);  // 0: free
    std::vector<Step> steps_;
    std::vector<std::string> events_;
};

std::size_t setting_or(const char* name, std::size_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

const char* name_of(Mode mode) {
    return std::array{"gather", "direct", "delta", "alias"}[static_cast<std::size_t>(mode)];
}
std::string name_of(const Setting& setting) {
    return fmt::format("{}{}, {} trainers, {} engine ranks, {} pushes, {} faults", name_of(setting.mode),
                       setting.ahead ? ", commit ahead" : "", setting.trainers, setting.engines,
                       setting.pushes, setting.faults);
}

// Breadth first, so that the first path to a broken promise is among the shortest.
void explore(Setting setting) {
    const std::size_t limit = setting_or("TANDEM_EXPLORE_STATES", 120'000);
    setting.faults = static_cast<std::uint8_t>(setting.faults + setting_or("TANDEM_EXPLORE_FAULTS", 0));
    Found found;
    std::deque<std::string> open{
        squeezed(World(setting))};  // behind `done`, in the order in which they were found
    found.add(key_of(World(setting)), Found::kStart, "");
    std::vector<std::pair<std::string, World>> next;
    std::size_t open_bytes = 0, most_bytes = 0;
    std::uint32_t done = 0;
    for (; !open.empty() && found.size() < limit; ++done) {
        const World world = unsqueezed(open.front());
        open.pop_front();
        if (const std::string promise = world.broken_promise(); !promise.empty()) {
            ADD_FAILURE() << name_of(setting) << ": " << promise << ", after\n"
                          << found.path_to(done) << world.to_string();
            return;
        }
        world.successors(next);
        for (auto& [event, after] : next) {
            if (found.add(key_of(after), done, event)) open.push_back(squeezed(after));
        }
        open_bytes = open.empty() ? 0 : open.size() * (sizeof(std::string) + open.front().capacity() + 16);
        most_bytes = std::max(most_bytes, open_bytes + found.bytes());
    }
    std::printf("%s: %zu states%s, %zu bytes each\n", name_of(setting).c_str(), found.size(),
                open.empty() ? ", all of them" : ", the nearest", most_bytes / found.size());
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

// Over TCP the commit does not wait for the buckets' answers.
class AheadProtocol : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, AheadProtocol, testing::Values(Mode::gather, Mode::direct),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(AheadProtocol, OneEngineRank) {
    explore({GetParam(), 1, 1, 2, 5, true});
    explore({GetParam(), 2, 1, 1, 3, true});
}
TEST_P(AheadProtocol, TwoEngineRanks) {
    explore({GetParam(), 1, 2, 2, 3, true});
    explore({GetParam(), 2, 2, 1, 2, true});
}
TEST_P(AheadProtocol, LongWalksWithManyFaults) {
    for (const std::size_t engines : {1u, 3u}) walk({GetParam(), 2, engines, 6, 40, true}, 300, 300);
}

}  // namespace
}  // namespace tandem::sync::protocol
