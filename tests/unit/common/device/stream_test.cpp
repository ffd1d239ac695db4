// Order, events, errors and draining of streams, inline and with a worker.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/device/stream.h"
#include "common/error.h"
#include "tests/support/soon.h"

namespace tandem {
namespace {

using test::soon;

TEST(Stream, InlineRunsAtOnce) {
    Stream stream = Stream::make_inline();
    EXPECT_TRUE(stream.is_inline());
    const auto caller = std::this_thread::get_id();
    std::thread::id ran;
    stream.enqueue([&] { ran = std::this_thread::get_id(); });
    EXPECT_EQ(ran, caller);
    EXPECT_EQ(stream.record().poll(), Poll::done);
    EXPECT_THROW(stream.enqueue([] { throw std::runtime_error("now"); }), std::runtime_error);
    stream.enqueue([&] { ran = {}; });  // an inline stream forgets: the caller had the error
    EXPECT_EQ(ran, std::thread::id());
    stream.synchronize();
}

TEST(Stream, WorkerKeepsTheOrder) {
    Stream stream = Stream::make_worker("test");
    EXPECT_FALSE(stream.is_inline());
    EXPECT_EQ(stream.name(), "test");
    std::vector<int> order;
    for (int i = 0; i < 1000; ++i) stream.enqueue([&order, i] { order.push_back(i); });
    stream.synchronize();
    ASSERT_EQ(order.size(), 1000U);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Event, MarksAPoint) {
    Stream stream = Stream::make_worker("test");
    std::promise<void> gate;
    std::atomic<int> steps = 0;
    stream.enqueue([&] { ++steps; });
    const Event before = stream.record();
    stream.enqueue([&, open = gate.get_future().share()] {
        open.wait();
        ++steps;
    });
    const Event after = stream.record();
    before.wait(soon());
    EXPECT_EQ(steps, 1);
    EXPECT_EQ(before.poll(), Poll::done);
    EXPECT_EQ(after.poll(), Poll::pending);
    EXPECT_THROW(after.wait(Deadline::after_ms(20)), DeadlineExceeded);
    gate.set_value();
    after.wait(soon());
    EXPECT_EQ(steps, 2);
    EXPECT_EQ(Event().poll(), Poll::done);
    Event().wait(Deadline::after_ms(0));
}

TEST(Event, OrdersTwoStreams) {
    Stream first = Stream::make_worker("first");
    Stream second = Stream::make_worker("second");
    int value = 0;  // not atomic: the event alone orders the accesses
    for (int i = 0; i < 200; ++i) {
        first.enqueue([&value] { ++value; });
        second.wait(first.record());
        second.enqueue([&value] {
            value *= 2;
            value %= 1000;
        });
        first.wait(second.record());
    }
    first.synchronize();
    int wanted = 0;
    for (int i = 0; i < 200; ++i) wanted = (wanted + 1) * 2 % 1000;
    EXPECT_EQ(value, wanted);
}

TEST(Event, InlineStreamWaitsOnTheCaller) {
    Stream worker = Stream::make_worker("worker");
    Stream here = Stream::make_inline();
    int value = 0;
    worker.enqueue([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        value = 5;
    });
    here.wait(worker.record());
    EXPECT_EQ(value, 5);
}

TEST(Stream, ErrorsStickAndSkipTheRest) {
    Stream stream = Stream::make_worker("test");
    const Event before = stream.record();
    bool ran = false;
    stream.enqueue([] { throw std::runtime_error("first"); });
    stream.enqueue([&] {
        ran = true;
        throw std::runtime_error("second");
    });
    const Event after = stream.record();
    EXPECT_THROW(after.wait(soon()), std::runtime_error);
    EXPECT_EQ(after.poll(), Poll::failed);
    before.wait(soon());
    try {
        stream.synchronize();
        FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "first");
    }
    EXPECT_FALSE(ran);
}

TEST(Stream, ErrorsTravelAlongEvents) {
    Stream failing = Stream::make_worker("failing");
    Stream waiting = Stream::make_worker("waiting");
    failing.enqueue([] { throw std::runtime_error("broken"); });
    waiting.wait(failing.record());
    bool ran = false;
    waiting.enqueue([&] { ran = true; });
    EXPECT_THROW(waiting.synchronize(), std::runtime_error);
    EXPECT_FALSE(ran);
}

TEST(Stream, DestructionDrains) {
    std::atomic<int> ran = 0;
    {
        Stream stream = Stream::make_worker("test");
        for (int i = 0; i < 100; ++i) stream.enqueue([&] { ++ran; });
    }
    EXPECT_EQ(ran, 100);
    {
        Stream stream = Stream::make_worker("first");
        stream.enqueue([&] { ++ran; });
        stream = Stream::make_worker("second");  // assignment drains what it replaces
        EXPECT_EQ(ran, 101);
        EXPECT_EQ(stream.name(), "second");
    }
}

TEST(Stream, CopiesInOrder) {
    Stream stream = Stream::make_worker("test");
    std::vector<char> a(1000, 'a');
    std::vector<char> b(1000, 'b');
    const Span to{reinterpret_cast<std::byte*>(b.data()), b.size()};
    copy(stream, {reinterpret_cast<const std::byte*>(a.data()), a.size()}, to);
    stream.synchronize();
    EXPECT_EQ(a, b);
    EXPECT_THROW(copy(stream, {reinterpret_cast<const std::byte*>(a.data()), 10}, to), InvalidArgument);
}

}  // namespace
}  // namespace tandem
