// Who is let into the data plane over TCP, and what a trainer that lies there is told.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>

#include "engine_adapter/channel/messages.h"
#include "engine_adapter/transport/tcp/transport.h"
#include "tests/contract/transport/tcp_rig.h"
#include "tests/support/ipv6.h"
#include "tests/support/silent_port.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

class TcpStrangers : public OverTcp {};

std::string connect_error(int port, const std::string& key, const std::string& options = "") {
    return error_of(
        [&] { connect(fmt::format("tcp://127.0.0.1:{}{}", port, options), soon(), {.key = key}); });
}

TEST_F(TcpStrangers, AnotherKeyIsRefusedAndTheRightOneLetIn) {
    EXPECT_THAT(connect_error(receiver_->data_port(), "another"),
                HasSubstr("the engine asks for another key"));
    EXPECT_EQ(connect_error(receiver_->data_port(), "a key"), "");
}

FileDescriptor connected_to(int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
    return socket;
}

std::string heard(const FileDescriptor& socket, std::size_t bytes) {
    std::string text(bytes, '\0');
    EXPECT_EQ(::recv(socket.get(), text.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    return text;
}

// What a trainer far away sees: within its round trip more strangers come than there used to be places.
TEST_F(TcpStrangers, AHandshakeOutlastsManyWhoComeMeanwhile) {
    const FileDescriptor trainer = connected_to(receiver_->data_port());
    const Nonce engine = tcp::parse_greeting(heard(trainer, tcp::kGreetingBytes)).engine;
    const Nonce mine = random_nonce();
    std::vector<FileDescriptor> strangers;
    for (int i = 0; i < 150; ++i) strangers.push_back(connected_to(receiver_->data_port()));
    heard(strangers.back(), tcp::kGreetingBytes);  // all are taken
    const JobSecret secret = tcp::secret_of(tcp::Kind::control, "a key");
    const std::string hello = tcp::hello(tcp::Kind::control, secret, engine, mine);
    ASSERT_EQ(::send(trainer.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(hello.size()));
    EXPECT_TRUE(tcp::accepted(heard(trainer, tcp::kVerdictBytes), tcp::Kind::control, secret, engine, mine));
}

TEST_F(TcpStrangers, AStrangerIsSentAwayAndHoldsNobodyUp) {
    const TcpAddress to{"127.0.0.1", std::to_string(receiver_->data_port())};
    EXPECT_THAT(
        error_of([&] { tcp::dial(to, tcp::Kind::data, "a token", 2, {}, "the engine", "attach", soon()); }),
        HasSubstr("attach with the engine: "));
    // Connections that say nothing.
    std::vector<FileDescriptor> silent;
    for (int i = 0; i < 100; ++i) silent.push_back(connected_to(receiver_->data_port()));
    push(*trainer(), 1, 5, soon());
    expect_all(5);
    // They are sent away: a read ends.
    std::array<char, 64> greeting{};
    for (const FileDescriptor& one : silent) {
        while (::recv(one.get(), greeting.data(), greeting.size(), 0) > 0) {
        }
    }
}

// Strangers may have all places for a while: who is sent away before the verdict comes again until the deadline.
TEST_F(TcpStrangers, WhoIsSentAwayBeforeTheVerdictComesAgain) {
    for (const bool after_greeting : {false, true}) {
        const int before = proxy_->accepted();
        proxy_->send_away(5, after_greeting);
        EXPECT_EQ(connect_error(proxy_->port(), "a key"), "");
        EXPECT_EQ(proxy_->accepted() - before, 6);
        proxy_->send_away(1'000'000'000, after_greeting);
        const std::string late = error_of([&] {
            connect(fmt::format("tcp://127.0.0.1:{}", proxy_->port()), Deadline::after_ms(2000),
                    {.key = "a key"});
        });
        EXPECT_THAT(late, HasSubstr("before it let anybody in"));
        EXPECT_THAT(late, HasSubstr("until the deadline"));
        proxy_->send_away(0);
    }
}

TEST_F(TcpStrangers, OnlyTheConnectionsThatWereSentAwayAreMadeAgain) {
    proxy_->send_away(3, true);
    const auto engine = trainer(4);
    EXPECT_EQ(proxy_->accepted(), 4 + 3);
    push(*engine, 1, 5, soon());
    expect_all(5);
}

TEST_F(TcpStrangers, ARefusalIsFinal) {
    EXPECT_THAT(connect_error(proxy_->port(), "another"), HasSubstr("the engine asks for another key"));
    EXPECT_EQ(proxy_->accepted(), 1);
    const TcpAddress to{"127.0.0.1", std::to_string(proxy_->port())};
    EXPECT_THAT(
        error_of([&] { tcp::dial(to, tcp::Kind::data, "a token", 1, {}, "the engine", "attach", soon()); }),
        HasSubstr("does not know this push any more"));
    EXPECT_EQ(proxy_->accepted(), 2);
}

// A frame that lies, from a trainer that knows its token.
class TcpLies : public OverTcp {
  protected:
    void SetUp() override {
        connection_ = std::make_shared<Connection>(Channel::connect(receiver_->address(), soon()));
        connection_->request({{"op", "hello"}, {"protocol", messages::kProtocol}, {"lease_ms", 60'000}},
                             "hello", soon());
        const std::vector<std::byte> packed = messages::pack_plan(plan_);
        connection_->request({{"op", "attach"},
                              {"regions", {memory_.size()}},
                              {"tcp", true},
                              {"transfers", 4},
                              {"buckets", 4},
                              {"ranks", 1}},
                             "attach", soon(), {packed.data(), packed.size()});
        const Message reply = connection_->request({{"op", "open_data"}}, "attach", soon());
        sockets_ =
            tcp::dial({"127.0.0.1", std::to_string(receiver_->data_port())}, tcp::Kind::data,
                      messages::string_field(reply.header, "token"), 1, {}, "the engine", "attach", soon());
        connection_->request({{"op", "begin"}, {"version", 2}, {"rollback", false}}, "begin", soon());
        all_ = checksums();
    }
    void send(const tcp::FrameHeader& header, std::size_t bytes) {
        const std::vector<std::byte> data(bytes);
        ::send(sockets_[0].get(), &header, sizeof(header), MSG_NOSIGNAL);
        for (std::size_t at = 0; at < bytes;) {
            const ssize_t n = ::send(sockets_[0].get(), data.data() + at, bytes - at, MSG_NOSIGNAL);
            if (n <= 0) return;
            at += static_cast<std::size_t>(n);
        }
    }
    std::string load_error() {
        return error_of([&] {
            connection_->request(
                {{"op", "load"}, {"index", 0}, {"checksums", 1}, {"serial", 0}, {"timeout_ms", 5000}}, "load",
                soon(), messages::as_bytes(std::span<const ops::Checksum>(all_).subspan(0, 1)));
        });
    }

    std::shared_ptr<Connection> connection_;
    std::vector<FileDescriptor> sockets_;
    std::vector<ops::Checksum> all_;
};

TEST_F(TcpLies, TheTruthPasses) {
    send({0, 0, kElements, kElements}, kElements);
    EXPECT_EQ(load_error(), "");
}

// A size that is asked for is capped by the host's net.core.wmem_max, and autotuning ends.
TEST_F(TcpLies, TheSystemSizesTheBufferOfADataConnectionThatTakesLittleMoreThanItSends) {
    int value = -1;
    socklen_t length = sizeof(value);
    ASSERT_EQ(::getsockopt(sockets_[0].get(), SOL_SOCKET, SO_BUF_LOCK, &value, &length), 0);
    EXPECT_EQ(value, 0);
    ASSERT_EQ(::getsockopt(sockets_[0].get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, &length), 0);
    EXPECT_EQ(value, 1 << 20);
}

TEST_F(TcpLies, MoreBytesThanAnyBucketHas) {
    send({0, 0, 1, std::uint64_t{1} << 40}, 0);
    EXPECT_THAT(load_error(), HasSubstr("where no bucket has more than"));
}

TEST_F(TcpLies, BytesOutsideOfTheBucket) {
    send({0, kElements, 64, kElements}, 64);
    EXPECT_THAT(load_error(), HasSubstr("a frame of 64 bytes at 1048576 of 1048576"));
}

TEST_F(TcpLies, AnotherSizeThanThePlans) {
    send({0, 0, 64, 64}, 64);
    EXPECT_THAT(load_error(), HasSubstr("sends 64 bytes for 1048576"));
}

TEST_F(TcpLies, MoreFramesThanTheBucketHas) {
    send({0, 0, kElements / 2, kElements}, kElements / 2);
    send({0, 0, kElements, kElements}, kElements);
    EXPECT_THAT(load_error(), HasSubstr("comes with more bytes than it has"));
}

TEST_F(TcpLies, ABucketInTheMiddleOfAFrame) {
    send({0, 0, kElements, kElements}, kElements / 2);
    sockets_.clear();
    EXPECT_THAT(load_error(), HasSubstr("it ends in the middle of a frame"));
}

// "localhost" is 127.0.0.1, then ::1.
TEST(TcpAddresses, ASilentAddressLeavesTimeToTheNext) {
    const test::SilentPort silent;
    const std::string port = std::to_string(silent.port());
    const auto connect_there = [&](long long ms) {
        return error_of(
            [&] { connect("tcp://localhost:" + port, Deadline::after_ms(ms), {.key = "a key"}); });
    };
    if (!test::has_ipv6()) {
        EXPECT_THAT(connect_there(2'000), HasSubstr("[::1]:" + port));
        return;
    }
    TestTarget target({{"small", {4}, DType::float32}});
    ReceiverOptions options;
    options.data_plane = TcpListen{.host = "::1", .port = port, .key = "a key"};
    const Receiver receiver(target, options);
    EXPECT_EQ(connect_there(20'000), "");
}

class WithoutKey : public OverTcp {
  protected:
    WithoutKey() : OverTcp(listening("")) {}
};

TEST_F(WithoutKey, OnlyTheSameUserOfTheSameHostPushes) {
    EXPECT_THAT(connect_error(receiver_->data_port(), ""), HasSubstr("the engine has no key"));
    push(*trainer(), 1, 5, soon());
    expect_all(5);
}

TEST_F(WithoutKey, ListensOnlyToThisHost) {
    TcpListen everywhere;
    everywhere.host = "0.0.0.0";
    EXPECT_THAT(error_of([&] { TcpListener listener(everywhere); }), HasSubstr("anybody could push weights"));
    everywhere.anybody = true;
    EXPECT_EQ(error_of([&] { TcpListener listener(everywhere); }), "");
}

class ForAnybody : public OverTcp {
  protected:
    ForAnybody() : OverTcp(listening("", true)) {}
};

// Who has a key wants it asked for: an impostor at the engine's port asks for none.
TEST_F(ForAnybody, AnybodyPushesButWhoHasAKey) {
    EXPECT_EQ(connect_error(receiver_->data_port(), ""), "");
    EXPECT_THAT(connect_error(receiver_->data_port(), "some key"), HasSubstr("asks for none"));
    EXPECT_EQ(connect_error(receiver_->data_port(), "some key", "?unauthenticated=1"), "");
    EXPECT_THAT(connect_error(receiver_->data_port(), "some key", "?unauthenticated=0"),
                HasSubstr("asks for none"));
    EXPECT_THAT(connect_error(receiver_->data_port(), "some key", "?unauthenticated=yes"),
                HasSubstr("there are 0, 1"));
}

}  // namespace
}  // namespace tandem::engine
