// How many buffers are made must not depend on when work ends, where a number was asked for.
#include "trainer/fsdp/buffer_cycle.h"

#include <gtest/gtest.h>

#include <future>

namespace tandem::trainer {
namespace {

constexpr std::int64_t kNumel = 64;

// A stream whose work ends when it is told to.
struct Held {
    Held() {
        stream.enqueue([held = done.get_future().share()] { held.wait(); });
    }
    std::promise<void> done;
    Stream stream = Stream::make_worker("held");
};

TEST(BufferCycle, WaitsForTheOldestOfAsManyAsWereAskedFor) {
    BufferCycle cycle("buffer_cycle_test", cpu_pool());
    cycle.make_at_least(2, kNumel, DType::float32);
    Stream user = Stream::make_worker("user");
    Held held;
    const Tensor first = cycle.take(kNumel, DType::float32, user);
    const std::byte* const place = first.raw();
    cycle.give_back(first, held.stream.record());
    const Tensor second = cycle.take(kNumel, DType::float32, user);
    EXPECT_NE(second.raw(), place);
    const Tensor third = cycle.take(kNumel, DType::float32, user);
    EXPECT_EQ(third.raw(), place);
    EXPECT_EQ(user.record().poll(), Poll::pending);  // it is free when the held work ends
    held.done.set_value();
    user.synchronize();
    EXPECT_EQ(memory_stats("buffer_cycle_test").live_bytes, 2 * kNumel * sizeof(float));
}

TEST(BufferCycle, MakesAnotherWhileNoneIsIdle) {
    BufferCycle cycle("buffer_cycle_test", cpu_pool());
    Stream user = Stream::make_inline();
    Held held;
    const Tensor first = cycle.take(kNumel, DType::float32, user);
    const std::byte* const place = first.raw();
    cycle.give_back(first, held.stream.record());
    const Tensor second = cycle.take(kNumel, DType::float32, user);
    EXPECT_NE(second.raw(), place);
    held.done.set_value();
    held.stream.synchronize();
    EXPECT_EQ(cycle.take(kNumel, DType::float32, user).raw(), place);
}

}  // namespace
}  // namespace tandem::trainer
