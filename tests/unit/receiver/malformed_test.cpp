// A receiver against peers that do not keep to the protocol: raw bytes on its socket, crafted and at random.
// It must answer or close, never crash, and serve the next trainer.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <random>
#include <thread>

#include "engine_adapter/receiver/client.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/transport/shm/address.h"
#include "engine_adapter/transport/shm/channel.h"
#include "tests/unit/receiver/test_target.h"

namespace tandem::engine {
namespace {

Deadline soon() {
    return Deadline::after_ms(5000);
}

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
                EXPECT_EQ(connect_receiver(receiver_.address(), soon())->capabilities().tensors.size(), 1u);
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
    const std::string hello = R"({"id": 1, "op": "hello", "protocol": 1})";
    const std::vector<std::string> bad{
        std::string("\xff\xff\xff\xff\0\0\0\0", 8),  // an endless header
        std::string("\0\0\0\0\xff\xff\xff\xff", 8),  // an endless payload
        frame(""),
        frame("not json"),
        frame("[1, 2]"),
        frame("{}"),
        frame(R"({"id": 0, "op": "hello", "protocol": 1})"),
        frame(R"({"id": "1", "op": "hello"})"),
        frame(R"({"id": 1e400, "op": "hello"})"),
        frame(R"({"id": 1})"),
        frame(R"({"id": 1, "op": 7})"),
        frame(R"({"id": 1, "op": "dance"})"),
        frame(R"({"id": 1, "op": "begin"})"),
        frame(R"({"id": 1, "op": "begin", "version": -3})"),
        frame(R"({"id": 1, "op": "begin", "version": 18446744073709551615})"),
        frame(R"({"id": 1, "op": "attach", "slots": 1, "slot_bytes": 64})"),  // no descriptor
        frame(R"({"id": 1, "op": "attach", "slots": 99999999, "slot_bytes": 64})"),
        frame(R"({"id": 1, "op": "attach", "slots": 512, "slot_bytes": 9223372036854775807})"),
        frame(R"({"id": 1, "op": "bucket", "index": 0, "slot": 0, "entries": 2})", std::string(47, 'x')),
        frame(R"({"id": 1, "op": "bucket", "index": 99999999999, "slot": 0, "entries": 0})"),
        frame(R"({"id": 1, "op": "bucket", "index": 0, "slot": 0, "entries": 384307168202282326})"),
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
        channel.send(header, {}, -1, "ask", soon());
        return channel.receive("answer", soon()).header;
    };
    EXPECT_TRUE(ask({{"id", 1}, {"op", "begin"}, {"version", 4}}).at("ok").get<bool>());
    EXPECT_FALSE(ask({{"id", 2}, {"op", "commit"}, {"version", 4}, {"manifest", "zz"}}).at("ok").get<bool>());
    EXPECT_TRUE(ask({{"id", 3}, {"op", "abort"}, {"reason", "test"}}).at("ok").get<bool>());
    EXPECT_EQ(target_.reason(), "test");  // the version had stayed open until then
}

TEST_F(MalformedTest, RandomBytesAndTornFramesDoNotHurtIt) {
    std::mt19937 random(3);
    const std::vector<std::string> good{
        frame(R"({"id": 1, "op": "hello", "protocol": 1})"),
        frame(R"({"id": 2, "op": "begin", "version": 4})"),
        frame(R"({"id": 3, "op": "bucket", "index": 0, "slot": 0, "entries": 1})", std::string(48, '\1')),
        frame(R"({"id": 4, "op": "commit", "version": 4, "manifest": "zz"})"),
        frame(R"({"id": 5, "op": "abort", "reason": "x"})"),
        frame(R"({"id": 6, "op": "checksums"})"),
    };
    for (int round = 0; round < 200; ++round) {
        std::string bytes;
        for (std::size_t n = random() % 5 + 1; n > 0; --n) bytes += good[random() % good.size()];
        for (std::size_t n = random() % 4; n > 0; --n)
            bytes[random() % bytes.size()] = static_cast<char>(random());
        bytes.resize(random() % (bytes.size() + 1));
        const FileDescriptor socket = raw();
        write(socket, bytes);
        ::shutdown(socket.get(), SHUT_WR);
        read_all(socket);  // ends: the receiver answers what it can and hangs up
    }
    EXPECT_FALSE(target_.refusing());  // no bucket had a staging area, so nothing was copied
    EXPECT_EQ(target_.commits(), 0);
    expect_alive();
}

}  // namespace
}  // namespace tandem::engine
