// Who takes part in a job with a secret: clients and servers that know it, and nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "common/error.h"
#include "common/store/store.h"
#include "tests/support/soon.h"
#include "tests/unit/common/store/raw_client.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kText = "correct horse battery staple";
const JobSecret kSecret(kText);

std::shared_ptr<Store> connect(int port, const std::optional<JobSecret>& secret) {
    return connect_tcp_store("127.0.0.1", port, test::soon(), secret);
}

std::string refusal(int port, const std::optional<JobSecret>& secret) {
    try {
        connect(port, secret);
    } catch (const ConfigError& error) {
        EXPECT_EQ(error.key(), "TANDEM_JOB_SECRET");
        return error.what();
    }
    return "";
}

TEST(StoreSecret, JoinsThoseWhoKnowIt) {
    const TcpStoreServer server("127.0.0.1", 0, {.secret = kSecret});
    connect(server.port(), kSecret)->set("a", "1");
    EXPECT_EQ(connect(server.port(), JobSecret(kText))->get("a", test::soon()), "1");
}

TEST(StoreSecret, RefusesEverybodyElse) {
    const TcpStoreServer with("127.0.0.1", 0, {.secret = kSecret});
    const TcpStoreServer without("127.0.0.1", 0);
    EXPECT_THAT(refusal(with.port(), std::nullopt), HasSubstr("rank 0's store asks for it"));
    EXPECT_THAT(refusal(without.port(), kSecret), HasSubstr("rank 0's store has none"));
    EXPECT_THAT(refusal(with.port(), JobSecret("correct horse battery stable")),
                HasSubstr("not the one of rank 0"));
    EXPECT_THAT(refusal(with.port(), JobSecret(kText + '\0')), HasSubstr("not the one of rank 0"));
}

TEST(StoreSecret, IsLongEnoughAndNeverShown) {
    for (const char* text : {"", "fifteen bytes.."}) {
        try {
            JobSecret secret{text};
            FAIL() << "no exception";
        } catch (const ConfigError& error) {
            EXPECT_THAT(error.what(), AllOf(HasSubstr("TANDEM_JOB_SECRET"), HasSubstr("at least 16"),
                                            Not(HasSubstr("fifteen"))));
        }
    }
    ::setenv("TANDEM_JOB_SECRET", "short", 1);
    EXPECT_THROW(JobSecret::from_environment(), ConfigError);
    ::setenv("TANDEM_JOB_SECRET", kText.c_str(), 1);
    const auto secret = JobSecret::from_environment();
    ::unsetenv("TANDEM_JOB_SECRET");
    EXPECT_TRUE(secret && secret->prove("client", {}, {}) == kSecret.prove("client", {}, {}));
    EXPECT_FALSE(JobSecret::from_environment());
}

TEST(StoreSecret, ProofsAreOfOneConnectionAndOneSide) {
    const Nonce one = random_nonce(), two = random_nonce();
    const Proof proof = kSecret.prove("client", one, two);
    EXPECT_TRUE(kSecret.holds(proof, "client", one, two));
    EXPECT_FALSE(kSecret.holds(proof, "server", one, two));
    EXPECT_FALSE(kSecret.holds(proof, "client", two, one));
    EXPECT_FALSE(kSecret.holds(proof, "client", one, random_nonce()));
    EXPECT_FALSE(kSecret.holds({}, "client", one, two));
    for (std::size_t bit = 0; bit < 8 * proof.size(); ++bit) {
        Proof other = proof;
        other[bit / 8] = static_cast<unsigned char>(other[bit / 8] ^ (1u << (bit % 8)));
        EXPECT_FALSE(kSecret.holds(other, "client", one, two)) << bit;
    }
}

// What a stranger may try without it: requests at once, requests after a wrong proof, and a proof that was overheard.
TEST(StoreSecret, HearsNoRequestBeforeTheProof) {
    const TcpStoreServer server("127.0.0.1", 0, {.secret = kSecret});
    const std::string sets = request(wire::Operation::set, "tandem/job", "/tmp/evil");
    RawClient at_once(server.port());
    at_once.greeting();
    for (int i = 0; i < 10; ++i) at_once.send(sets);
    EXPECT_EQ(at_once.receive(1), std::string(1, '\2'));
    at_once.receive(wire::kVerdict - 1);
    EXPECT_TRUE(at_once.closed());

    RawClient honest(server.port());
    const std::string greeting = honest.greeting();
    Nonce theirs;
    std::memcpy(theirs.data(), greeting.data() + greeting.size() - theirs.size(), theirs.size());
    const Proof proof = kSecret.prove("client", theirs, {});
    std::string words(wire::kNonce, '\0');
    words.append(proof.begin(), proof.end());
    honest.send(words);
    EXPECT_EQ(honest.receive(1), std::string(1, '\0'));
    RawClient repeats(server.port());
    EXPECT_NE(repeats.greeting(), greeting);
    repeats.send(words + sets);
    EXPECT_EQ(repeats.receive(wire::kVerdict), '\2' + std::string(wire::kMac, '\0'));
    EXPECT_TRUE(repeats.closed());
    EXPECT_THROW(connect(server.port(), kSecret)->get("tandem/job", Deadline::after_ms(1)), DeadlineExceeded);
}

// Somebody who listens where rank 0 should, and says yes to every proof.
TEST(StoreSecret, ServersProveItToo) {
    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ASSERT_EQ(::bind(listening, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(::listen(listening, 1), 0);
    ASSERT_EQ(::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size), 0);
    std::thread stranger([&] {
        const int fd = ::accept(listening, nullptr, nullptr);
        const std::string greeting = std::string(wire::kMagic) + '\1' + std::string(wire::kNonce, 'n');
        EXPECT_EQ(::send(fd, greeting.data(), greeting.size(), 0), static_cast<ssize_t>(greeting.size()));
        char proof[wire::kProof];
        EXPECT_EQ(::recv(fd, proof, sizeof(proof), MSG_WAITALL), static_cast<ssize_t>(sizeof(proof)));
        // The client's own MAC, thrown back at it.
        const std::string verdict = '\0' + std::string(proof + wire::kNonce, wire::kMac);
        EXPECT_EQ(::send(fd, verdict.data(), verdict.size(), 0), static_cast<ssize_t>(verdict.size()));
        ::close(fd);
    });
    EXPECT_THAT(refusal(ntohs(address.sin_port), kSecret), HasSubstr("not known to who listens there"));
    stranger.join();
    ::close(listening);
}

}  // namespace
}  // namespace tandem
