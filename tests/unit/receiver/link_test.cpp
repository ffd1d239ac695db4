#include "engine_adapter/receiver/link.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace tandem::engine {
namespace {

double milliseconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

TEST(Link, LetsSoManyBytesPassInASecondWhateverTheirSize) {
    for (const std::size_t piece : {1000u, 100'000u, 1'000'000u}) {
        Link link(50e6);
        const double ms = milliseconds([&] {
            for (std::size_t sent = 0; sent < 5'000'000; sent += piece) link.take(piece);
        });
        EXPECT_GE(ms, 99) << piece;  // 5 MB at 50 MB/s; a machine with other work may take longer
        EXPECT_LE(ms, 300) << piece;
    }
}

TEST(Link, IsSharedByThreads) {
    Link link(50e6);
    const double ms = milliseconds([&] {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                for (int i = 0; i < 25; ++i) link.take(50'000);
            });
        }
        for (std::thread& thread : threads) thread.join();
    });
    EXPECT_GE(ms, 99);
    EXPECT_LE(ms, 300);
}

TEST(Link, DoesNotSaveUpWhatWasNotUsed) {
    Link link(50e6);
    link.take(1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_GE(milliseconds([&] { link.take(2'500'000); }), 49);
}

TEST(Link, WithoutALimitNothingWaits) {
    Link link(0);
    EXPECT_LT(milliseconds([&] { link.take(std::size_t{1} << 50); }), 1000);
}

}  // namespace
}  // namespace tandem::engine
