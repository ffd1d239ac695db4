// The client against our server and against peers that misbehave.
#include "common/http/client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/http/server.h"
#include "tests/support/ipv6.h"
#include "tests/support/silent_port.h"
#include "tests/support/soon.h"
#include "tests/unit/common/http/raw_connection.h"

namespace tandem::http {
namespace {

using test::soon;

using nlohmann::json;
using testing::HasSubstr;

std::string url_of(int port) {
    return "http://127.0.0.1:" + std::to_string(port);
}

template <typename Call>
std::string error_of(Call call) {
    try {
        call();
    } catch (const TransportError& error) {
        return error.what();
    }
    return "no error";
}

class HttpClient : public testing::Test {
  protected:
    explicit HttpClient(std::chrono::milliseconds idle_timeout = std::chrono::seconds(30))
        : server({.listen = "127.0.0.1:0", .max_body_bytes = 100'000, .idle_timeout = idle_timeout}) {
        server.route("POST", "/echo", [](const Request& r, Responder out) { out.send(200, r.body); });
        server.route("GET", "/text",
                     [](const Request&, Responder out) { out.send(200, "not json", "text/plain"); });
        server.route("GET", "/busy", [](const Request&, Responder out) {
            out.fail({Code::unavailable, "no version"});
        });
        server.route("GET", "/never", [this](const Request&, Responder out) { waiting.push_back(out); });
        server.start();
    }
    ~HttpClient() override { server.stop(); }
    std::vector<Responder> waiting;  // of the server's thread
    Server server;
};

TEST_F(HttpClient, JsonThereAndBackOverOneConnection) {
    Client client(server.url());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(client.post_json("/echo", {{"i", i}}, soon())["i"], i);
    const Response response = client.request("POST", "/echo", "plain", soon());
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "plain");
}

TEST_F(HttpClient, NoChildInheritsASocketOfClientOrServer) {
    Client client(url_of(server.port()));
    client.post_json("/echo", {{"n", 1}}, soon());
    int sockets = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        if (!std::filesystem::is_socket(entry.path(), gone)) continue;
        ++sockets;
        EXPECT_NE(::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0) << entry.path();
    }
    EXPECT_EQ(sockets, 3) << "one that listens, and both ends of one that is kept alive";
}

// So long that a busy machine sends a small request before it has passed.
class HttpClientOfAnImpatientServer : public HttpClient {
  protected:
    HttpClientOfAnImpatientServer() : HttpClient(std::chrono::seconds(2)) {}
};

TEST_F(HttpClientOfAnImpatientServer, ReconnectsAfterItClosedAnIdleConnection) {
    Client client(server.url());
    EXPECT_EQ(client.post_json("/echo", {{"i", 1}}, soon())["i"], 1);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    EXPECT_EQ(client.post_json("/echo", {{"i", 2}}, soon())["i"], 2);
}

TEST_F(HttpClient, StatusesBecomeErrorsThatNameUrlAndReason) {
    Client client(server.url());
    EXPECT_EQ(client.request("GET", "/nowhere", "", soon()).status, 404);
    EXPECT_THAT(
        error_of([&] { client.get_json("/nowhere", soon()); }),
        testing::AllOf(HasSubstr("GET /nowhere with " + server.url()), HasSubstr("HTTP 404: no such route")));
    EXPECT_THAT(error_of([&] { client.get_json("/busy", soon()); }), HasSubstr("HTTP 503: no version"));
    EXPECT_THAT(error_of([&] { client.get_json("/text", soon()); }),
                HasSubstr("the answer is not valid JSON at line 1"));
    try {
        client.get_json("/busy", soon());
    } catch (const TransportError& error) {
        EXPECT_TRUE(error.retryable());
    }
}

TEST_F(HttpClient, ARedirectIsNamedAndNotFollowed) {
    const SilentListener listener;
    const std::jthread proxy([&] {
        const int peer = listener.accept();
        const std::string answer =
            "HTTP/1.1 302 Found\r\nLocation: https://other.example/\r\nContent-Length: 0\r\n\r\n";
        EXPECT_EQ(::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(answer.size()));
        ::close(peer);
    });
    EXPECT_THAT(error_of([&] { Client(url_of(listener.port())).get_json("/version", soon()); }),
                HasSubstr("HTTP 302: a redirect to https://other.example/, which is not followed"));
}

TEST_F(HttpClient, ReadsTheAnswerToARefusedBody) {
    Client client(server.url());
    EXPECT_EQ(client.request("POST", "/echo", std::string(5'000'000, 'a'), soon()).status, 413);
    EXPECT_EQ(client.request("POST", "/echo", "fits", soon()).status, 200);
}

TEST_F(HttpClient, AnAnswerMayBeSoLargeAndNoLarger) {
    Client client(server.url(), "", 1000);
    EXPECT_EQ(client.request("POST", "/echo", std::string(1000, 'a'), soon()).body.size(), 1000u);
    try {
        client.request("POST", "/echo", std::string(1001, 'a'), soon());
        FAIL() << "taken";
    } catch (const TransportError& error) {
        EXPECT_THAT(error.what(), HasSubstr("the answer is larger than 1000 bytes"));
        EXPECT_FALSE(error.retryable()) << "the next answer would be as large";
    }
    EXPECT_EQ(client.request("POST", "/echo", "fits", soon()).body, "fits");
}

TEST_F(HttpClient, DeadlinesNameTheUrl) {
    Client client(server.url());
    const auto start = std::chrono::steady_clock::now();
    try {
        client.request("GET", "/never", "", Deadline::after_ms(100));
        FAIL() << "answered";
    } catch (const DeadlineExceeded& error) {
        EXPECT_EQ(error.peer(), server.url());
        EXPECT_EQ(error.phase(), "GET /never");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_THROW(client.request("GET", "/text", "", Deadline::after_ms(-1)), DeadlineExceeded);
    EXPECT_EQ(client.request("GET", "/text", "", soon()).status, 200) << "a new connection serves again";
}

TEST(HttpClientAgainstBadPeers, AnAddressThatDoesNotAnswerIsNamed) {
    const test::SilentPort silent;
    Client client(url_of(silent.port()));
    EXPECT_THAT(error_of([&] { client.request("GET", "/", "", Deadline::after_ms(100)); }),
                HasSubstr("connect with " + url_of(silent.port()) +
                          ": 127.0.0.1:" + std::to_string(silent.port()) + ": no answer"));
}

// "localhost" is 127.0.0.1, then ::1.
TEST(HttpClientAgainstBadPeers, ASilentAddressLeavesTimeToTheNext) {
    const test::SilentPort silent;
    const std::string port = std::to_string(silent.port());
    Client client("http://localhost:" + port);
    if (!test::has_ipv6()) {
        EXPECT_THAT(error_of([&] { client.request("GET", "/", "", Deadline::after_ms(2'000)); }),
                    HasSubstr("[::1]:" + port));
        return;
    }
    Server server({.listen = "[::1]:" + port});
    server.route("GET", "/", [](const Request&, Responder out) { out.send(200, "here", "text/plain"); });
    server.start();
    EXPECT_EQ(client.request("GET", "/", "", soon()).body, "here");
    server.stop();
}

TEST(HttpClientAgainstBadPeers, SilenceRefusalAndRubbish) {
    const SilentListener silent;
    Client client(url_of(silent.port()));
    EXPECT_THROW(client.request("GET", "/", "", Deadline::after_ms(100)), DeadlineExceeded);

    int unused_port = 0;
    { unused_port = SilentListener().port(); }
    Client refused(url_of(unused_port));
    EXPECT_THAT(error_of([&] { refused.request("GET", "/", "", soon()); }),
                HasSubstr("connect with " + url_of(unused_port)));

    const SilentListener rubbish;
    for (const std::string answer :
         {"", "rubbish\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"}) {
        std::thread peer([&] {
            const int fd = rubbish.accept();
            char block[1024];
            EXPECT_GT(::recv(fd, block, sizeof(block), 0), 0);
            EXPECT_EQ(::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL),
                      static_cast<long>(answer.size()));
            ::close(fd);
        });
        Client victim(url_of(rubbish.port()));
        EXPECT_THAT(error_of([&] { victim.request("GET", "/x", "", soon()); }),
                    HasSubstr("GET /x with " + url_of(rubbish.port())));
        peer.join();
    }
}

TEST(HttpClientAgainstBadPeers, AnAnswerMayHaveCookiesOfAProxy) {
    const SilentListener proxy;
    std::thread peer([&] {
        const int fd = proxy.accept();
        char block[1024];
        EXPECT_GT(::recv(fd, block, sizeof(block), 0), 0);
        const std::string answer =
            "HTTP/1.1 200 OK\r\nSet-Cookie: " + std::string(20'000, 'a') + "\r\nContent-Length: 2\r\n\r\nok";
        EXPECT_EQ(::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<long>(answer.size()));
        ::close(fd);
    });
    Client client(url_of(proxy.port()));
    EXPECT_EQ(client.request("GET", "/", "", soon()).body, "ok");
    peer.join();
}

// Taken for the answer, it also left the real one to be read as the next request's.
TEST(HttpClientAgainstBadPeers, WhatProxiesAnnounceIsNotTheAnswer) {
    const SilentListener proxy;
    std::thread peer([&] {
        const int fd = proxy.accept();
        for (const char* body : {"one", "two"}) {
            char block[1024];
            EXPECT_GT(::recv(fd, block, sizeof(block), 0), 0);
            const std::string answer = std::string("HTTP/1.1 100 Continue\r\n\r\n") +
                                       "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\n" +
                                       "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + body;
            for (const char byte : answer) EXPECT_EQ(::send(fd, &byte, 1, MSG_NOSIGNAL), 1);
        }
        ::close(fd);
    });
    Client client(url_of(proxy.port()));
    for (const char* body : {"one", "two"}) {
        const Response answer = client.request("GET", "/", "", soon());
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(answer.body, body);
    }
    peer.join();
}

TEST(HttpClientAgainstBadPeers, AnnouncementsWithoutEndEndAtTheDeadline) {
    const SilentListener proxy;
    std::thread peer([&] {
        const int fd = proxy.accept();
        std::string many;
        for (int i = 0; i < 1000; ++i) many += "HTTP/1.1 100 Continue\r\n\r\n";
        while (::send(fd, many.data(), many.size(), MSG_NOSIGNAL) > 0) {
        }
        ::close(fd);
    });
    Client client(url_of(proxy.port()));
    EXPECT_THROW(client.request("GET", "/", "", Deadline::after_ms(200)), DeadlineExceeded);
    peer.join();
}

TEST_F(HttpClient, AKeyWithALineBreakIsRefusedUnprinted) {
    for (const char* key : {"secret\r", "secret\nx: y", "\tsecret", "secret\x7f"}) {
        try {
            Client client("http://127.0.0.1:1", key);
            ADD_FAILURE() << "accepted";
        } catch (const BadInput& error) {
            EXPECT_THAT(error.what(),
                        testing::AllOf(HasSubstr("API key"), testing::Not(HasSubstr("secret"))));
        }
    }
    EXPECT_NO_THROW(Client("http://127.0.0.1:1",
                           "s\xc3\xa9"
                           "cret 1"));
}

TEST(Url, Parses) {
    const Url url = parse_url("http://host:81/a/b/");
    EXPECT_EQ(url.host, "host");
    EXPECT_EQ(url.port, "81");
    EXPECT_EQ(url.prefix, "/a/b");
    EXPECT_EQ(parse_url("http://host").port, "80");
    for (const char* ipv6 : {"http://[::1]:80/a", "http://[::1]/a"}) {
        EXPECT_EQ(parse_url(ipv6).host, "::1");
        EXPECT_EQ(parse_url(ipv6).port, "80");
    }
    try {
        parse_url("http://user:word@h:80");
    } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), testing::Not(HasSubstr("word")));
    }
    try {
        parse_url("http://h:x", "vllm://h:x");
        FAIL() << "no port, and nothing thrown";
    } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("URL \"vllm://h:x\" has no valid port"));
    }
    for (const char* socket : {"unix:///run/a.sock", "unix:/run/a.sock"})
        EXPECT_EQ(parse_url(socket).socket, "/run/a.sock");
    for (const char* bad : {"unix:",
                            "unix:run/a",
                            "unix://run/a",
                            "unix:/run/",
                            "",
                            "host:80",
                            "https://host",
                            "http://",
                            "http://:80",
                            "http://h:",
                            "http://h:99999",
                            "http://h:0",
                            "http://user:word@h:80",
                            "http://[::1]:",
                            "http://[::1",
                            "http://[h]",
                            "http://[h]:80",
                            "http://::1",
                            "http://::1:80",
                            "http://[::1]x:80"}) {
        EXPECT_THROW(parse_url(bad), InvalidArgument) << bad;
    }
}

}  // namespace
}  // namespace tandem::http
