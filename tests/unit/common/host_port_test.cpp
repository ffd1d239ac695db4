// HOST:PORT there and back, and the sockets that a server has at one.
#include "common/host_port.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/error.h"
#include "common/listening_sockets.h"
#include "tests/support/ipv6.h"

namespace tandem {
namespace {

using test::has_ipv6;
using testing::HasSubstr;

std::string refusal_of_host_port(const std::string& text) {
    try {
        parse_host_port(text);
    } catch (const BadInput& error) {
        return error.what();
    }
    return "accepted";
}

TEST(HostPort, ThereAndBack) {
    for (const char* text : {"127.0.0.1:30000", "localhost:0", "node-7.cluster:65535", "[::1]:80", "[::]:0",
                             "[fe80::1%eth0]:7", "[::ffff:10.0.0.1]:7"}) {
        const HostPort parsed = parse_host_port(text);
        EXPECT_EQ(parsed.host.find('['), std::string::npos) << text;
        EXPECT_EQ(to_host_port(parsed.host, parsed.port), text);
    }
    EXPECT_EQ(to_url_host("::1"), "[::1]");
    EXPECT_EQ(to_url_host("localhost"), "localhost");
    EXPECT_EQ(parse_host("[::1]"), "::1");
    for (const char* host : {"::1", "localhost", "10.0.0.1", "[x]", ""}) EXPECT_EQ(parse_host(host), host);
}

TEST(HostPort, RefusalsSayTheRightForm) {
    EXPECT_THAT(refusal_of_host_port("::1:30000"), HasSubstr("write [::1]:30000"));
    EXPECT_THAT(refusal_of_host_port("fd00::2:8000"), HasSubstr("write [fd00::2]:8000"));
    EXPECT_THAT(refusal_of_host_port("::1"), HasSubstr("write [::1]:PORT"));
    EXPECT_THAT(refusal_of_host_port("[::1]"), HasSubstr("write [::1]:PORT"));
    for (const char* text : {"", ":80", "host", "host:", "host:x", "host:65536", "host:-1", "host: 1",
                             "[::1]:", "[::1:80", "::1]:80", "[]:80", "[host]:80", "[::1]x:80",
                             "[127.0.0.1]:80", "http://host:80", "a:b:80", "user@host:80"}) {
        EXPECT_THAT(refusal_of_host_port(text), HasSubstr("is not HOST:PORT")) << text;
    }
}

TEST(ListeningSockets, LocalhostIsBothLoopbacksAtOnePort) {
    for (const char* name : {"localhost", "LocalHost"}) {
        const ListeningSockets all = listen_at(name, 0);
        EXPECT_EQ(all.sockets.size(), has_ipv6() ? 2u : 1u);
        EXPECT_EQ(all.sockets.front().family, AF_INET);
        EXPECT_TRUE(all.loopback);
        for (const auto& one : all.sockets) {
            sockaddr_storage at{};
            socklen_t length = sizeof at;
            ASSERT_EQ(::getsockname(one.socket.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
            EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(&at)->sin_port), all.port);
        }
        EXPECT_THROW(listen_at(name, all.port), SystemError) << "in use";
    }
}

TEST(ListeningSockets, OtherAddresses) {
    EXPECT_TRUE(listen_at("127.0.0.2", 0).loopback);
    EXPECT_FALSE(listen_at("0.0.0.0", 0).loopback);
    EXPECT_THROW(listen_at("203.0.113.1", 0), SystemError);  // nobody's (documentation range)
    EXPECT_THROW(listen_at("no host", 0), BadInput);
    if (!has_ipv6()) return;
    EXPECT_TRUE(listen_at("::1", 0).loopback);
    EXPECT_FALSE(listen_at("::", 0).loopback);
}

}  // namespace
}  // namespace tandem
