#include "engine_adapter/receiver/link.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "engine_adapter/receiver/weight_writer.h"

namespace tandem::engine {
namespace {

double milliseconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double milliseconds(Link::Clock::duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

// How long pass() would wait, on the test's own clock: a busy machine changes nothing.
TEST(Link, LetsSoManyBytesPassInASecondWhateverTheirSize) {
    const Link::Clock::time_point start = Link::Clock::now();
    for (const std::size_t piece : {1000u, 100'000u, 1'000'000u}) {
        for (const bool waits : {false, true}) {  // before it asks for the next piece
            Link link(50e6);
            Link::Clock::time_point end = start;
            for (std::size_t sent = 0; sent < 5'000'000; sent += piece)
                end = link.book(piece, waits ? end : start);
            EXPECT_NEAR(milliseconds(end - start), 99.8, 0.05) << piece;  // ahead by what sleeps end late
        }
    }
}

TEST(Link, IsSharedByThreads) {
    Link link(50e6);
    const double ms = milliseconds([&] {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                for (int i = 0; i < 25; ++i) link.pass(50'000);
            });
        }
        for (std::thread& thread : threads) thread.join();
    });
    EXPECT_GE(ms, 99);
}

TEST(Link, DoesNotSaveUpWhatWasNotUsed) {
    Link link(50e6);
    const Link::Clock::time_point start = Link::Clock::now();
    link.book(1000, start);
    const auto later = start + std::chrono::milliseconds(100);
    EXPECT_NEAR(milliseconds(link.book(2'500'000, later) - later), 49.8, 0.05);
}

TEST(Link, WithoutALimitNothingWaits) {
    EXPECT_EQ(WeightWriter(Device{}, 1, 0).link(), nullptr);
    EXPECT_NE(WeightWriter(Device{}, 1, 1e9).link(), nullptr);
}

}  // namespace
}  // namespace tandem::engine
