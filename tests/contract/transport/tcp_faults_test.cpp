// The data plane over TCP when the network or a stranger does its worst: each failure is named within its deadline,
// nothing is loaded that differs, and the next push succeeds.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "engine_adapter/channel/messages.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/tandem/engine.h"
#include "engine_adapter/transport/tcp/transport.h"
#include "tests/contract/transport/tcp_proxy.h"
#include "tests/support/error_of.h"
#include "tests/unit/engine_adapter/receiver/soon.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {
namespace {

using test::error_of;
using test::Mischief;
using testing::AllOf;
using testing::HasSubstr;

ReceiverOptions listening(const std::string& key = "a key", bool anybody = false) {
    ReceiverOptions options;
    options.data_plane = TcpListen{.key = key, .anybody = anybody};
    options.data_plane->patience = std::chrono::milliseconds(300);
    return options;
}

class TcpFaults : public testing::Test {
  protected:
    static constexpr std::size_t kElements = 1 << 20;  // of the one tensor, float32

    explicit TcpFaults(const ReceiverOptions& options = listening())
        : target_(big()), receiver_(std::make_unique<Receiver>(target_, options)) {
        memory_.resize(kElements * 4);
        proxy_ = std::make_unique<test::TcpProxy>(receiver_->data_port());
    }
    static std::vector<TensorInfo> big() { return {{"big", {kElements}, DType::float32}}; }
    // Four buckets of 1 MiB.
    static TransferPlan buckets() {
        TransferPlan plan;
        constexpr std::uint64_t kBytes = kElements;  // of a bucket
        for (std::uint64_t b = 0; b < 4; ++b) {
            plan.transfers.push_back({0, 3, 0, DType::float32, 1, kBytes / 4, b * kBytes, 0, b * kBytes, 0});
            plan.first.push_back(b + 1);
        }
        return plan;
    }
    // Control here, data through the proxy.
    std::unique_ptr<TandemEngine> trainer(int connections = 2) {
        for (int i = 0;; ++i) {
            try {
                auto engine = std::make_unique<TandemEngine>(Channel::connect(receiver_->address(), soon()),
                                                             ConnectOptions{}, soon());
                engine->go_over_tcp({"127.0.0.1", std::to_string(proxy_->port())},
                                    {.connections = connections});
                engine->attach({{{memory_.data(), memory_.size()}}}, plan_, soon());
                return engine;
            } catch (const TransportError&) {
                if (i == 500) throw;
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        }
    }
    void fill(int value) { std::memset(memory_.data(), value, memory_.size()); }
    std::vector<ops::Checksum> checksums() const {
        std::vector<ops::Checksum> all;
        for (std::size_t b = 0; b < 4; ++b)
            all.push_back(ops::checksum({memory_.data() + b * kElements, kElements}));
        return all;
    }
    void push(Engine& engine, std::int64_t version, int value, Deadline deadline) {
        fill(value);
        const auto all = checksums();
        engine.begin(version, deadline);
        for (int b = 0; b < 4; ++b)
            engine.load(b, std::span(all).subspan(static_cast<std::size_t>(b), 1), deadline);
        for (int b = 0; b < 4; ++b) engine.wait_loaded(b, deadline);
        engine.commit(version, manifest_checksum(version, big(), plan_, all), deadline);
    }
    void expect_all(int value) const {
        const Span memory = target_.reading(0);
        for (std::size_t i = 0; i < memory.bytes; ++i)
            ASSERT_EQ(std::to_integer<int>(memory.data[i]), value) << "byte " << i;
    }
    // A failed push over version 1, all sevens: whether a bucket was written before the failure is a matter of time. If
    // not, version 1 is whole and serves; if one was, nothing does until the next push.
    void intact_or_refusing_and_healed(Engine& engine, int value) {
        engine.abort("the test gives it up", soon());
        wait_until_idle();
        if (!target_.refusing()) {
            EXPECT_EQ(target_.version(), 1);
            expect_all(7);
        }
        proxy_->misbehave(Mischief::none, 0);
        push(engine, 9, value, soon());
        expect_all(value);
        EXPECT_FALSE(target_.refusing());
        EXPECT_EQ(target_.version(), 9);
    }
    void wait_until_idle() const {
        for (int i = 0; i < 500 && target_.aborts() == 0; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_GT(target_.aborts(), 0);
    }

    TransferPlan plan_ = buckets();
    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
    std::vector<std::byte> memory_;
    std::unique_ptr<test::TcpProxy> proxy_;
};

TEST_F(TcpFaults, ABitThatFlipsOnTheWayIsRefusedByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::corrupt, 2'500'000);
    EXPECT_THAT(error_of([&] { push(*engine, 2, 8, soon()); }),
                AllOf(HasSubstr("'big'"), HasSubstr("rank 3"), HasSubstr("is corrupted")));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(TcpFaults, AConnectionThatBreaksEndsThePushAndTheNextOneSucceeds) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::cut, 2'500'000);
    const auto start = std::chrono::steady_clock::now();
    const std::string why = error_of([&] { push(*engine, 2, 8, Deadline::after_ms(20'000)); });
    EXPECT_THAT(why,
                AllOf(HasSubstr("load bucket "), HasSubstr(engine->peer()), HasSubstr("data connection")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(TcpFaults, ALinkThatCarriesNothingEndsWithinTheDeadlineByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::stall, 2'500'000);
    const auto start = std::chrono::steady_clock::now();
    const std::string why = error_of([&] { push(*engine, 2, 8, Deadline::after_ms(700)); });
    EXPECT_THAT(why, AllOf(HasSubstr("load bucket "), HasSubstr(engine->peer())));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(TcpFaults, AnAbortInTheMiddleLeavesConnectionsOfNoUseAndMakesNewOnes) {
    const auto engine = trainer(3);
    push(*engine, 1, 7, soon());
    EXPECT_EQ(proxy_->accepted(), 3);
    proxy_->misbehave(Mischief::stall, 500'000);
    fill(8);
    const auto all = checksums();
    engine->begin(2, soon());
    engine->load(0, std::span(all).subspan(0, 1), soon());
    engine->abort("another rank failed", soon());
    EXPECT_FALSE(target_.refusing());  // nothing was written
    EXPECT_EQ(target_.version(), 1);
    expect_all(7);
    proxy_->misbehave(Mischief::none, 0);
    push(*engine, 3, 9, soon());
    expect_all(9);
    EXPECT_EQ(proxy_->accepted(), 6);
}

TEST_F(TcpFaults, ATrainerThatGoesLeavesTheEngineToTheNext) {
    auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::stall, 1'500'000);
    fill(8);
    const auto all = checksums();
    engine->begin(2, soon());
    for (int b = 0; b < 4; ++b)
        engine->load(b, std::span(all).subspan(static_cast<std::size_t>(b), 1), soon());
    engine.reset();
    wait_until_idle();
    proxy_->misbehave(Mischief::none, 0);
    push(*trainer(), 5, 6, soon());
    expect_all(6);
}

TEST_F(TcpFaults, WhatWasSentAheadOfAPushThatIsGivenUpIsForgotten) {
    const auto engine = trainer(3);
    push(*engine, 1, 7, soon());
    fill(8);
    for (const int b : {0, 1, 2, 3}) engine->send_ahead(b, soon());  // more than there are slots
    engine->abort("the pause failed", soon());
    EXPECT_FALSE(target_.refusing());
    EXPECT_EQ(target_.version(), 1);
    expect_all(7);
    push(*engine, 2, 9, soon());
    expect_all(9);
    EXPECT_EQ(proxy_->accepted(), 6);  // over other connections
}

TEST_F(TcpFaults, ABitThatFlipsAheadOfThePauseIsRefusedByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    fill(8);
    proxy_->misbehave(Mischief::corrupt, 500'000);
    const auto all = checksums();
    engine->send_ahead(0, soon());
    engine->begin(2, soon());
    engine->load(0, std::span(all).subspan(0, 1), soon());
    EXPECT_THAT(error_of([&] { engine->wait_loaded(0, soon()); }),
                AllOf(HasSubstr("'big'"), HasSubstr("rank 3"), HasSubstr("is corrupted")));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(TcpFaults, ALinkThatIsCutWhileABucketTravelsAheadEndsWithinTheDeadlineByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    for (const Mischief how : {Mischief::stall, Mischief::cut}) {
        fill(8);
        proxy_->misbehave(how, 500'000);
        const auto all = checksums();
        const auto start = std::chrono::steady_clock::now();
        const std::string why = error_of([&] {
            engine->send_ahead(0, Deadline::after_ms(700));
            engine->begin(2, Deadline::after_ms(700));
            engine->load(0, std::span(all).subspan(0, 1), Deadline::after_ms(700));
            engine->wait_loaded(0, Deadline::after_ms(700));
        });
        EXPECT_THAT(why, AllOf(HasSubstr("load bucket 0"), HasSubstr(engine->peer())));
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
        engine->abort("the test gives it up", soon());
        expect_all(7);  // not one bucket was whole
        EXPECT_FALSE(target_.refusing());
    }
    proxy_->misbehave(Mischief::none, 0);
    push(*engine, 3, 9, soon());
    expect_all(9);
}

TEST_F(TcpFaults, WhatWasSentAheadIsWhatIsLoadedNext) {
    const auto engine = trainer();
    const auto all = checksums();
    engine->send_ahead(1, soon());
    EXPECT_THROW(engine->send_ahead(1, soon()), InvalidArgument);
    EXPECT_THROW(engine->send_ahead(4, soon()), InvalidArgument);
    engine->begin(1, soon());
    EXPECT_THROW(engine->load(0, std::span(all).subspan(0, 1), soon()), InvalidArgument);
    EXPECT_THROW(engine->load_delta(9, {}, soon()), InvalidArgument);
    engine->load(1, std::span(all).subspan(1, 1), soon());
    EXPECT_THROW(engine->send_ahead(2, soon()), InvalidArgument);
    engine->wait_loaded(1, soon());
}

class CommitAhead : public TcpFaults {
  protected:
    // Asks for the commit before any bucket has been answered for.
    void ask(Engine& engine, std::int64_t version, int value, bool only_rank = true) {
        fill(value);
        const auto all = checksums();
        manifest_ = manifest_checksum(version, big(), plan_, all);
        engine.pause(soon());
        engine.begin(version, soon());
        for (int b = 0; b < 4; ++b)
            engine.load(b, std::span(all).subspan(static_cast<std::size_t>(b), 1), soon());
        engine.commit_ahead(version, manifest_, only_rank, soon());
    }
    ops::Checksum manifest_;
};

TEST_F(CommitAhead, AnEngineOfOneRankServesTheVersionWithTheAnswer) {
    const auto engine = trainer();
    ask(*engine, 1, 7);
    for (int b = 0; b < 4; ++b) engine->wait_loaded(b, soon());
    engine->commit(1, manifest_, soon());
    EXPECT_TRUE(target_.serves());
    EXPECT_EQ(target_.version(), 1);
    expect_all(7);
    engine->resume(soon());
    push(*engine, 2, 8, soon());  // asks for the commit in its turn
    expect_all(8);
}

TEST_F(CommitAhead, WaitsForTheOtherRanks) {
    const auto engine = trainer();
    ask(*engine, 1, 7, false);
    for (int b = 0; b < 4; ++b) engine->wait_loaded(b, soon());
    engine->commit(1, manifest_, soon());
    EXPECT_TRUE(target_.held());
    engine->resume(soon());
    EXPECT_TRUE(target_.serves());
}

TEST_F(CommitAhead, NothingIsCommittedWhenABucketIsRefused) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::corrupt, 3'500'000);  // in the last one
    ask(*engine, 2, 8);
    EXPECT_THAT(error_of([&] {
                    for (int b = 0; b < 4; ++b) engine->wait_loaded(b, soon());
                }),
                HasSubstr("is corrupted"));
    engine->abort("the test gives it up", soon());
    EXPECT_TRUE(target_.refusing());
    EXPECT_EQ(target_.commits(), 1);
    proxy_->misbehave(Mischief::none, 0);
    ask(*engine, 3, 9);
    for (int b = 0; b < 4; ++b) engine->wait_loaded(b, soon());
    engine->commit(3, manifest_, soon());
    EXPECT_TRUE(target_.serves());
    expect_all(9);
}

class CommitAheadOfTwoRanks : public CommitAhead {
  protected:
    CommitAheadOfTwoRanks() { plan_.ranks = 2; }
};

TEST_F(CommitAheadOfTwoRanks, NoneOfThemServesWhatTheOtherMayLack) {
    const auto engine = trainer();
    ask(*engine, 1, 7);
    for (int b = 0; b < 4; ++b) engine->wait_loaded(b, soon());
    EXPECT_THAT(error_of([&] { engine->commit(1, manifest_, soon()); }),
                HasSubstr("before all 2 ranks have it"));
    EXPECT_TRUE(target_.refusing());
}

TEST_F(TcpFaults, RegionsThatAreNotHereAreRefused) {
    const auto engine = trainer();
    EXPECT_THAT(error_of([&] {
                    engine->attach({{{nullptr, memory_.size()}, -1, {DeviceType::cuda, 0}}}, plan_, soon());
                }),
                HasSubstr("TCP carries host memory"));
    EXPECT_FALSE(engine->capabilities().alias);
    EXPECT_TRUE(engine->capabilities().distant);
}

std::string connect_error(int port, const std::string& key) {
    return error_of([&] { connect(fmt::format("tcp://127.0.0.1:{}", port), soon(), {.key = key}); });
}

TEST_F(TcpFaults, AnotherKeyIsRefusedAndTheRightOneLetIn) {
    EXPECT_THAT(connect_error(receiver_->data_port(), "another"),
                HasSubstr("the engine asks for another key"));
    EXPECT_EQ(connect_error(receiver_->data_port(), "a key"), "");
}

TEST_F(TcpFaults, AStrangerIsSentAwayAndHoldsNobodyUp) {
    const TcpAddress to{"127.0.0.1", std::to_string(receiver_->data_port())};
    EXPECT_THAT(
        error_of([&] { tcp::dial(to, tcp::Kind::data, "a token", 2, {}, "the engine", "attach", soon()); }),
        HasSubstr("attach with the engine: "));
    // Connections that say nothing, more than the listener keeps.
    std::vector<FileDescriptor> silent;
    for (int i = 0; i < 100; ++i) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(static_cast<std::uint16_t>(receiver_->data_port()));
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::connect(silent.back().get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
    }
    push(*trainer(), 1, 5, soon());
    expect_all(5);
    // They are sent away: a read ends.
    std::array<char, 64> greeting{};
    for (const FileDescriptor& one : silent) {
        while (::recv(one.get(), greeting.data(), greeting.size(), 0) > 0) {
        }
    }
}

// A frame that lies, from a trainer that knows its token.
class TcpLies : public TcpFaults {
  protected:
    void SetUp() override {
        connection_ = std::make_shared<Connection>(Channel::connect(receiver_->address(), soon()));
        connection_->request({{"op", "hello"}, {"protocol", messages::kProtocol}, {"lease_ms", 60'000}}, {},
                             {}, "hello", soon());
        const std::vector<std::byte> packed = messages::pack_plan(plan_);
        connection_->request({{"op", "attach"},
                              {"regions", {memory_.size()}},
                              {"tcp", true},
                              {"transfers", 4},
                              {"buckets", 4},
                              {"ranks", 1}},
                             {packed.data(), packed.size()}, {}, "attach", soon());
        const Message reply = connection_->request({{"op", "open_data"}}, {}, {}, "attach", soon());
        sockets_ =
            tcp::dial({"127.0.0.1", std::to_string(receiver_->data_port())}, tcp::Kind::data,
                      messages::string_field(reply.header, "token"), 1, {}, "the engine", "attach", soon());
        connection_->request({{"op", "begin"}, {"version", 2}, {"rollback", false}}, {}, {}, "begin", soon());
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
                {{"op", "load"}, {"index", 0}, {"checksums", 1}, {"serial", 0}, {"timeout_ms", 5000}},
                messages::as_bytes(std::span<const ops::Checksum>(all_).subspan(0, 1)), {}, "load", soon());
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

class WithoutKey : public TcpFaults {
  protected:
    WithoutKey() : TcpFaults(listening("")) {}
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

class ForAnybody : public TcpFaults {
  protected:
    ForAnybody() : TcpFaults(listening("", true)) {}
};

TEST_F(ForAnybody, AnybodyPushes) {
    EXPECT_EQ(connect_error(receiver_->data_port(), ""), "");
    EXPECT_EQ(connect_error(receiver_->data_port(), "some key"), "");
}

}  // namespace
}  // namespace tandem::engine
