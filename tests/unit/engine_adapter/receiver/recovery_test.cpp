// Trainers that go away in the middle of a message, and engines that do not answer: the next one must not
// suffer for it.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "common/device/shared_arena.h"
#include "common/error.h"
#include "engine_adapter/channel/channel.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "tests/support/soon.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {
namespace {

using test::soon;

TEST(Recovery, ATrainerThatHungUpWithMuchUnreadMakesRoomAtOnce) {
    TestTarget target({{"large", {32 << 20}, DType::uint8}});
    const Receiver receiver(target, {.copy_threads = 1});
    for (int round = 0; round < 5; ++round) {
        Channel gone = Channel::connect(receiver.address(), soon());
        gone.send({{"op", "hello"}, {"id", 1}, {"protocol", messages::kProtocol}, {"lease_ms", 10'000}},
                  "hello", soon());
        // Each takes milliseconds: most are unread when the next trainer comes.
        for (int id = 2; id < 30; ++id) gone.send({{"op", "checksums"}, {"id", id}}, "checksums", soon());
        ::shutdown(gone.fd(), SHUT_WR);
        EXPECT_NO_THROW(engine::connect(receiver.address(), soon())) << "round " << round;
    }
}

// Answers everything but buckets and aborts.
void serve_silently(const Listener& listener) {
    FileDescriptor socket;
    while (!socket) socket.reset(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Channel channel(std::move(socket), "trainer");
    try {
        for (;;) {
            const Message message = channel.receive("request", soon());
            const std::string op = message.header.at("op");
            if (op == "load" || op == "abort") continue;
            nlohmann::json reply = nlohmann::json::object();
            if (op == "hello")
                reply = messages::capabilities_to_json({"silent", {{"a", {64}, DType::uint8}}, 0, 4, false});
            reply["id"] = message.header.at("id");
            reply["ok"] = true;
            channel.send(reply, "reply", soon());
        }
    } catch (const Error&) {  // the trainer is done
    }
}

TEST(Recovery, AnAbortWithoutAnAnswerLeavesNoBucketInFlight) {
    const Listener listener = listen_abstract();
    std::thread engine_thread([&] { serve_silently(listener); });
    {
        const auto engine = engine::connect(listener.address, soon());
        const SharedArena arena = SharedArena::create("test", 4096);
        TransferPlan plan;
        plan.transfers = {{0, 0, 0, DType::uint8, 1, 64, 0, 64, 0, 64}};
        plan.first = {0, 1};
        engine->attach({{arena.span(), arena.fd()}}, plan, soon());
        engine->begin(1, soon());
        const ops::Checksum checksum;
        engine->buckets().load(0, {&checksum, 1}, soon());
        EXPECT_THROW(engine->abort("enough", Deadline::after_ms(50)), DeadlineExceeded);
        engine->begin(2, soon());
        EXPECT_NO_THROW(engine->buckets().load(0, {&checksum, 1}, soon()));
    }
    engine_thread.join();
}

}  // namespace
}  // namespace tandem::engine
