// A receiver against peers that do not keep to the protocol: raw bytes on its socket, crafted and at random.
// It must answer or close, never crash, and serve the next trainer.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "common/device/shared_arena.h"
#include "engine_adapter/channel/channel.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "tests/support/soon.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {
namespace {

using test::soon;

class MalformedTest : public testing::Test {
  protected:
    MalformedTest() : target_({{"a", {64}, DType::float32}}), receiver_(target_) {}

    FileDescriptor raw() {
        const AbstractAddress at = parse_abstract_address(receiver_.address());
        FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length), 0);
        return socket;
    }
    static void write(const FileDescriptor& socket, const std::string& bytes) {
        std::size_t sent = 0;
        while (sent < bytes.size()) {
            const ssize_t n = ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (n <= 0) return;  // it hung up, as it may
            sent += static_cast<std::size_t>(n);
        }
    }
    static std::string frame(const std::string& header, const std::string& payload = "") {
        const std::uint32_t lengths[2]{static_cast<std::uint32_t>(header.size()),
                                       static_cast<std::uint32_t>(payload.size())};
        return std::string(reinterpret_cast<const char*>(lengths), sizeof(lengths)) + header + payload;
    }
    // Reads until the receiver hangs up.
    static std::string read_all(const FileDescriptor& socket) {
        std::string all;
        char block[4096];
        for (ssize_t n = 0; (n = ::recv(socket.get(), block, sizeof(block), 0)) > 0;)
            all.append(block, static_cast<std::size_t>(n));
        return all;
    }
    void expect_alive() {
        for (int i = 0; i < 500; ++i) {
            try {
                EXPECT_EQ(engine::connect(receiver_.address(), soon())->capabilities().tensors.size(), 1u);
                return;
            } catch (const TransportError&) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        }
        FAIL() << "the receiver serves nobody any more";
    }

    TestTarget target_;
    Receiver receiver_;
};

TEST_F(MalformedTest, WhatIsNoMessageGetsAnErrorAndEndsTheConnection) {
    const std::string hello = R"({"id": 1, "op": "hello", "protocol": 3})";
    const std::vector<std::string> bad{
        std::string("\xff\xff\xff\xff\0\0\0\0", 8),  // an endless header
        std::string("\0\0\0\0\xff\xff\xff\xff", 8),  // an endless payload
        frame(""),
        frame("not json"),
        frame("[1, 2]"),
        frame("{}"),
        frame(R"({"id": 0, "op": "hello", "protocol": 3})"),
        frame(R"({"id": "1", "op": "hello"})"),
        frame(R"({"id": 1e400, "op": "hello"})"),
        frame(R"({"id": 1})"),
        frame(R"({"id": 1, "op": 7})"),
        frame(R"({"id": 1, "op": "dance"})"),
        frame(R"({"id": 1, "op": "begin"})"),
        frame(R"({"id": 1, "op": "begin", "version": -3})"),
        frame(R"({"id": 1, "op": "begin", "version": 18446744073709551615})"),
        frame(R"({"id": 1, "op": "attach"})"),
        frame(R"({"id": 1, "op": "attach", "regions": [64], "transfers": 0, "buckets": 0})",
              std::string(8, '\0')),  // no descriptor
        frame(R"({"id": 1, "op": "attach", "regions": {}, "transfers": 0, "buckets": 0})",
              std::string(8, '\0')),
        frame(R"({"id": 1, "op": "attach", "regions": [0], "transfers": 0, "buckets": 0})"),
        frame(
            R"({"id": 1, "op": "attach", "regions": [], "transfers": 0, "buckets": 0, "ranks": 1, "cores": [-1]})",
            std::string(8, '\0')),
        frame(R"({"id": 1, "op": "attach", "regions": ["64"], "transfers": 0, "buckets": 0})"),
        frame(R"({"id": 1, "op": "attach", "regions": [], "transfers": 0, "buckets": 0})"),  // no payload
        frame(R"({"id": 1, "op": "attach", "regions": [], "transfers": 1, "buckets": 0})",
              std::string(8, 'x')),
        frame(R"({"id": 1, "op": "attach", "regions": [], "transfers": 1, "buckets": 0})",
              std::string(71, 'x')),
        frame(R"({"id": 1, "op": "attach", "regions": [], "transfers": 1, "buckets": 0})",
              std::string(72, 'x')),
        frame(R"({"id": 1, "op": "attach", "regions": [], "transfers": 288230376151711745, "buckets": 0})",
              std::string(72, 'x')),
        frame(R"({"id": 1, "op": "attach", "regions": [], "transfers": 0, "buckets": 9223372036854775807})",
              std::string(8, 'x')),
        frame(R"({"id": 1, "op": "load", "index": 0, "checksums": 2})", std::string(31, 'x')),
        frame(R"({"id": 1, "op": "load", "index": -1, "checksums": 0})"),
        frame(R"({"id": 1, "op": "load", "index": 0, "checksums": 1152921504606846977})",
              std::string(16, 'x')),
        frame(R"({"id": 1, "op": "load_delta", "index": 0, "entries": 1})", std::string(39, 'x')),
        frame(R"({"id": 1, "op": "load_delta", "index": 0})"),
        frame(R"({"id": 1, "op": "verify", "checksums": 1})"),
        frame(R"({"id": 1, "op": "adopt", "checksums": 0})"),
        frame(R"({"id": 1, "op": "adopt", "shift": -8, "checksums": 0})"),
        frame(R"({"id": 1, "op": "probe", "offset": 0, "bytes": 0, "piece_bytes": 1})"),
        frame(R"({"id": 1, "op": "probe", "offset": 0, "bytes": 1})"),
        frame(std::string(100'000, '[')),
        frame(hello) + "garbage!",
    };
    for (const std::string& bytes : bad) {
        const FileDescriptor socket = raw();
        write(socket, bytes);
        const std::string answer = read_all(socket);
        EXPECT_NE(answer.find("\"ok\":false"), std::string::npos) << bytes.substr(0, 80) << " → " << answer;
    }
    expect_alive();
}

TEST_F(MalformedTest, AManifestThatIsNoChecksumIsAnErrorOfTheRequest) {
    Channel channel(raw(), "receiver");
    const auto ask = [&](const nlohmann::json& header) {
        channel.send(header, "ask", soon());
        return channel.receive("answer", soon()).header;
    };
    const SharedArena arena = SharedArena::create("malformed", 256);
    const TransferPlan plan{{{0, 0, 0, DType::float32, 1, 64, 0, 0, 0, 0}}, {0, 1}};
    const std::vector<std::byte> packed = messages::pack_plan(plan);
    const int fd = arena.fd();
    channel.send(
        {{"id", 1}, {"op", "attach"}, {"regions", {256}}, {"transfers", 1}, {"buckets", 1}, {"ranks", 1}},
        "attach", soon(), {packed.data(), packed.size()}, {&fd, 1});
    EXPECT_TRUE(channel.receive("answer", soon()).header.at("ok").get<bool>());
    EXPECT_TRUE(ask({{"id", 2}, {"op", "begin"}, {"version", 4}}).at("ok").get<bool>());
    EXPECT_FALSE(ask({{"id", 3}, {"op", "commit"}, {"version", 4}, {"manifest", "zz"}}).at("ok").get<bool>());
    EXPECT_TRUE(ask({{"id", 4}, {"op", "abort"}, {"reason", "test"}}).at("ok").get<bool>());
    EXPECT_EQ(target_.reason(), "test");  // the version had stayed open until then
}

TEST_F(MalformedTest, RandomBytesAndTornFramesDoNotHurtIt) {
    std::mt19937 random(3);
    const std::vector<std::pair<std::string, std::string>> good{
        {R"("op": "hello", "protocol": 3})", {}},
        {R"("op": "begin", "version": 4})", {}},
        {R"("op": "load", "index": 0, "checksums": 1})", std::string(16, '\1')},
        {R"("op": "load_delta", "index": 0, "entries": 1})", std::string(40, '\1')},
        {R"("op": "verify", "checksums": 1})", std::string(16, '\1')},
        {R"("op": "adopt", "shift": 0, "checksums": 1})", std::string(16, '\1')},
        {R"("op": "attach", "regions": [], "transfers": 1, "buckets": 1, "ranks": 1})",
         std::string(12, '\0') + std::string(1, '\1') + std::string(67, '\0')},
        {R"("op": "probe", "offset": 0, "bytes": 64, "piece_bytes": 64})", {}},
        {R"("op": "held"})", {}},
        {R"("op": "commit", "version": 4, "manifest": "zz"})", {}},
        {R"("op": "abort", "reason": "x"})", {}},
        {R"("op": "checksums"})", {}},
    };
    for (int round = 0; round < 200; ++round) {
        std::string bytes;
        int id = 0;
        for (std::size_t n = random() % 5 + 1; n > 0; --n) {
            const auto& [rest, payload] = good[random() % good.size()];
            bytes += frame(fmt::format(R"({{"id": {}, {})", ++id, rest), payload);
        }
        for (std::size_t n = random() % 4; n > 0; --n)
            bytes[random() % bytes.size()] = static_cast<char>(random());
        bytes.resize(random() % (bytes.size() + 1));
        const FileDescriptor socket = raw();
        write(socket, bytes);
        ::shutdown(socket.get(), SHUT_WR);
        read_all(socket);  // ends: the receiver answers what it can and hangs up
    }
    EXPECT_FALSE(target_.refusing());  // nothing could be attached, so nothing was copied
    EXPECT_EQ(target_.commits(), 0);
    expect_alive();
}

// Plans with random numbers in them, attached for real: refused, or carried out within bounds.
TEST_F(MalformedTest, RandomPlansAreRefusedOrHarmless) {
    std::mt19937_64 random(29);
    const SharedArena arena = SharedArena::create("malformed", 4096);
    const auto engine = engine::connect(receiver_.address(), soon());
    int attached = 0;
    for (int round = 0; round < 2000; ++round) {
        TransferPlan plan{{{0, 0, 0, DType::float32, 1, 32, 0, 0, 0, 0},
                           {0, 0, 0, DType::float32, 4, 8, 1024, 32, 128, 32}},
                          {0, 2}};
        std::vector<std::byte> bytes = messages::pack_plan(plan);
        for (std::size_t n = random() % 3; n > 0; --n) {
            // A small value, a large one, or one byte.
            const std::size_t at = random() % (bytes.size() / 8) * 8;
            const std::uint64_t values[] = {random() % 300, random(), ~(random() % 300)};
            std::memcpy(bytes.data() + at, &values[random() % 3], 1 + random() % 8);
        }
        try {
            plan = messages::unpack_plan({bytes.data(), bytes.size()}, 2, 1);
        } catch (const MalformedMessage&) {
            continue;
        }
        try {
            engine->attach({{arena.span(), arena.fd()}}, plan, soon());
        } catch (const ProtocolError&) {
            continue;
        }
        ++attached;
        engine->begin(round + 1, soon());
        const std::vector<ops::Checksum> wrong(plan.first[1]);
        engine->buckets().load(0, wrong, soon());
        EXPECT_THROW(engine->buckets().wait_loaded(0, soon()), ProtocolError);
    }
    EXPECT_GT(attached, 500);
    EXPECT_LT(attached, 1900);
}

}  // namespace
}  // namespace tandem::engine
