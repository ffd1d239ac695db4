// The server against good and bad HTTP, from raw sockets: limits, keep-alive, late answers, clients that go
// away.
#include "common/http/server.h"

#include <gmock/gmock.h>

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/http/client.h"
#include "tests/support/soon.h"
#include "tests/unit/common/http/http_server.h"

namespace tandem::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST_F(HttpServer, AnswersAndKeepsTheConnection) {
    start();
    const RawConnection connection(server->port());
    for (int i = 0; i < 3; ++i) {
        const std::string word = "word" + std::to_string(i);
        connection.send(post("/echo", word));
        const std::string answer = connection.read_until(word);
        EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
        EXPECT_THAT(answer, HasSubstr("\r\n\r\n" + word));
    }
    connection.send(get("/query?a=1&b=2"));
    EXPECT_THAT(connection.read_until("b=2"), HasSubstr("\r\n\r\na=1&b=2"));
    connection.send("GET /query?end HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(connection.read_until("end"), HasSubstr("Connection: close"));
    EXPECT_TRUE(connection.closed_by_peer());
}

TEST_F(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
    start();
    const RawConnection connection(server->port());
    connection.send(post("/echo", "first") + post("/echo", "second"));
    const std::string answers = connection.read_until("second");
    EXPECT_LT(answers.find("first"), answers.find("second"));
}

TEST_F(HttpServer, ErrorsOfRouting) {
    start();
    EXPECT_THAT(once(get("/nowhere")), StartsWith("HTTP/1.1 404"));
    EXPECT_THAT(once(get("/\xff\xfe")), StartsWith("HTTP/1.1 4")) << "not UTF-8";
    const std::string wrong = once(get("/echo"));
    EXPECT_THAT(wrong, StartsWith("HTTP/1.1 405"));
    EXPECT_THAT(wrong, HasSubstr("Allow: POST"));
    EXPECT_THAT(once(get("/invalid")), StartsWith("HTTP/1.1 400"));
    EXPECT_THAT(once(get("/bug")), StartsWith("HTTP/1.1 500"));
    EXPECT_THAT(once(get("/crash")), StartsWith("HTTP/1.1 500"));
    EXPECT_THAT(once(get("/drop")), StartsWith("HTTP/1.1 500"));
}

TEST_F(HttpServer, MalformedHttpIs400AndClosed) {
    start();
    for (const char* bytes :
         {"rubbish\r\n\r\n", "GET /echo\r\n\r\n", "GET /echo HTTP/9.9\r\n\r\n",
          "POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"}) {
        const RawConnection connection(server->port());
        connection.send(bytes);
        EXPECT_THAT(connection.read_until("}}"), StartsWith("HTTP/1.1 400")) << bytes;
    }
    EXPECT_THAT(once("GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), StartsWith("HTTP/1.1 400"));
    EXPECT_THAT(once(post("/echo", "still serving")), StartsWith("HTTP/1.1 200"));
}

// As uvicorn: a cookie of a proxy's is easily 9 KB.
TEST_F(HttpServer, HeadersOf64KiBAreTakenAndLongerOnesAre431) {
    start();
    const auto with = [&](std::size_t bytes) {
        return once("GET /query HTTP/1.1\r\nHost: localhost\r\nCookie: " + std::string(bytes, 'a') +
                    "\r\n\r\n");
    };
    for (const std::size_t bytes : {9000u, 20000u, 65000u})
        EXPECT_THAT(with(bytes), StartsWith("HTTP/1.1 200")) << bytes;
    for (const std::size_t bytes : {66000u, 300000u, 3000000u})
        EXPECT_THAT(with(bytes), testing::AllOf(StartsWith("HTTP/1.1 431"), HasSubstr("Connection: close")))
            << bytes;
    std::string many = "GET /query HTTP/1.1\r\nHost: localhost\r\n";
    for (int i = 0; i < 10000; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
    EXPECT_THAT(once(many + "\r\n"), StartsWith("HTTP/1.1 431"));
    EXPECT_THAT(once("GET /" + std::string(70000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpServer, FormsOfTheTarget) {
    start();
    for (const char* target :
         {"/query?a", "/query/?a", "/query//?a", "/%71uery?a", "http://localhost/query?a",
          "HTTP://127.0.0.1:80/query/?a", "https://[::1]/query?a"}) {
        EXPECT_THAT(once(get(target)), StartsWith("HTTP/1.1 200")) << target;
    }
    EXPECT_THAT(once(get("http://evil.example/query")), StartsWith("HTTP/1.1 403")) << "in the place of Host";
    EXPECT_THAT(once("GET http://localhost/query HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
                StartsWith("HTTP/1.1 200"));
    for (const char* target : {"/", "http://localhost", "http://localhost?a", "//query", "/query/a"})
        EXPECT_THAT(once(get(target)), StartsWith("HTTP/1.1 404")) << target;
    for (const char* target : {"query", "http://", "http:///query", "http://user:word@localhost/query", "/%7",
                               "/%zz", "ftp://localhost/query"}) {
        EXPECT_THAT(once(get(target)), StartsWith("HTTP/1.1 400")) << target;
    }
}

TEST_F(HttpServer, HeadIsAnsweredWhereGetIs) {
    start();
    const RawConnection connection(server->port());
    const auto head = [&](const std::string& path) {
        connection.send("HEAD " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        return connection.read_until("\r\n\r\n");
    };
    EXPECT_THAT(head("/query?abc"),
                testing::AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Length: 3")));
    EXPECT_THAT(head("/echo"), testing::AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: POST\r\n")));
    EXPECT_THAT(head("/nowhere"), StartsWith("HTTP/1.1 404"));
    connection.send(get("/query?next"));
    EXPECT_THAT(connection.read_until("next"), StartsWith("HTTP/1.1 200")) << "no body came before it";
    EXPECT_THAT(once("DELETE /query HTTP/1.1\r\nHost: localhost\r\n\r\n"), HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST_F(HttpServer, BodiesInFormsThatAreNotRead) {
    start();
    const auto with = [&](const std::string& headers) {
        return once("POST /echo HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n2\r\nok\r\n0\r\n\r\n");
    };
    const std::string length = "Content-Length: 2\r\n", chunked = "Transfer-Encoding: chunked\r\n";
    for (const char* coding : {"gzip", "deflate, identity", "br", "identity, gzip"}) {
        const std::string answer = with(length + "Content-Encoding: " + coding + "\r\n");
        EXPECT_THAT(answer,
                    testing::AllOf(StartsWith("HTTP/1.1 415"), HasSubstr("Accept-Encoding: identity")));
    }
    EXPECT_THAT(with(chunked + "Content-Encoding: gzip\r\n"), StartsWith("HTTP/1.1 415"));
    for (const char* coding : {"identity", "Identity", "identity, identity", ""})
        EXPECT_THAT(with(length + "Content-Encoding: " + coding + "\r\n"), StartsWith("HTTP/1.1 200"))
            << coding;
    for (const char* coding : {"gzip", "gzip, chunked", "chunked, gzip", "identity"})
        EXPECT_THAT(with(std::string("Transfer-Encoding: ") + coding + "\r\n"), StartsWith("HTTP/1.1 501"))
            << coding;
    for (const std::string& both : {length + chunked, chunked + length, chunked + chunked})
        EXPECT_THAT(with(both), StartsWith("HTTP/1.1 400")) << both;
    EXPECT_THAT(with("Transfer-Encoding: Chunked\r\n"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(with(length + "Expect: a-miracle\r\n"), StartsWith("HTTP/1.1 417"));
    EXPECT_THAT(once("GET /query HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n\r\n"),
                StartsWith("HTTP/1.1 200"))
        << "there is no body";
}

TEST_F(HttpServer, Http10AndConnectionLists) {
    start();
    const RawConnection old(server->port());
    for (int i = 0; i < 2; ++i) {
        old.send(
            "POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: "
            "2\r\n\r\nok");
        EXPECT_THAT(old.read_until("ok"),
                    testing::AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Connection: keep-alive")));
    }
    EXPECT_THAT(once("GET /query HTTP/1.0\r\n\r\n"), HasSubstr("Connection: close"));
    EXPECT_THAT(once("GET /query HTTP/1.1\r\nHost: localhost\r\nConnection: TE, Close\r\n\r\n"),
                HasSubstr("Connection: close"));
    const RawConnection kept(server->port());
    for (int i = 0; i < 2; ++i) {
        kept.send(
            "GET /query?a HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "
            "h2c\r\n\r\n");
        EXPECT_THAT(kept.read_until("\r\n\r\na"), StartsWith("HTTP/1.1 200"));
    }
}

TEST_F(HttpServer, OversizeBodiesAre413) {
    ServerOptions options;
    options.max_body_bytes = 1000;
    start(options);
    EXPECT_THAT(once(post("/echo", std::string(1000, 'a'))), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(once(post("/echo", std::string(1001, 'a'))), StartsWith("HTTP/1.1 413"));
    EXPECT_THAT(once(post("/echo", std::string(3'000'000, 'a'))), StartsWith("HTTP/1.1 413"));
    EXPECT_THAT(once("POST /echo HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
                StartsWith("HTTP/1.1 4"));
    const std::string chunk = "200\r\n" + std::string(512, 'a') + "\r\n";
    EXPECT_THAT(once("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk +
                     chunk + "0\r\n\r\n"),
                StartsWith("HTTP/1.1 413"));
}

// What Beast skips without counting it as body.
TEST_F(HttpServer, EndlessChunkExtensionsAre400) {
    start();
    const RawConnection connection(server->port());
    connection.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;");
    for (int i = 0; i < 5; ++i) connection.send(std::string(64 << 10, 'a'));
    EXPECT_THAT(connection.read_until("}}"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServer, AKeyIsAskedForBeforeTheBodyIsRead) {
    ServerOptions options;
    options.api_key = "secret";
    options.admin_api_key = "master";
    options.listen = "127.0.0.1:0";
    server = std::make_unique<Server>(options);
    const auto yes = [](const Request&, Responder out) { out.send(200, "yes", "text/plain"); };
    server->route("POST", "/open", yes, Access::open);
    server->route("POST", "/user", yes);
    server->route("POST", "/admin", yes, Access::admin);
    server->start();
    const auto ask = [&](const std::string& path, const std::string& header) {
        return once("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + header +
                    "Content-Length: 0\r\n\r\n");
    };
    EXPECT_THAT(ask("/open", ""), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(ask("/user", ""),
                testing::AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer")));
    EXPECT_THAT(ask("/user", "Authorization: Bearer secret\r\n"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(ask("/user", "x-api-key: secret\r\n"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(ask("/admin", "x-api-key: secret\r\n"), StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(ask("/admin", "x-api-key: master\r\n"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(once("POST /user HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n"),
                StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(once("POST /user HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n"),
                StartsWith("HTTP/1.1 403"));
    Client client(server->url(), "secret");
    EXPECT_EQ(client.request("POST", "/user", "", test::soon()).status, 200);
}

TEST_F(HttpServer, BodiesShareABudget) {
    ServerOptions options;
    options.max_bodies_bytes = 300'000;
    start(options);
    const RawConnection slow(server->port());
    slow.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\nhalf");
    std::string second;
    for (int i = 0; i < 500 && !second.starts_with("HTTP/1.1 503"); ++i)
        second = once(post("/echo", std::string(200'000, 'a')));  // the first one's header may be on its way
    EXPECT_THAT(second, StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(once(post("/echo", "small ones pass")), StartsWith("HTTP/1.1 200"));
    slow.send(std::string(199'996, 'b'));
    EXPECT_THAT(slow.read_until("bbb"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(once(post("/echo", std::string(200'000, 'a'))), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServer, ExpectContinueIsAnswered) {
    start();
    const RawConnection connection(server->port());
    connection.send(
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(connection.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    connection.send("ok");
    EXPECT_THAT(connection.read_until("ok"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServer, IdleAndHalfSentRequestsAreClosed) {
    ServerOptions options;
    options.idle_timeout = std::chrono::milliseconds(100);
    start(options);
    const RawConnection idle(server->port());
    const RawConnection half(server->port());
    half.send("POST /echo HTTP/1.1\r\nContent-Le");
    EXPECT_TRUE(idle.closed_by_peer());
    EXPECT_TRUE(half.closed_by_peer());
}

TEST_F(HttpServer, LateAnswersComeFromAnyThreadAndOnce) {
    ServerOptions options;
    options.idle_timeout =
        std::chrono::milliseconds(100);  // does not run while a request waits for its answer
    start(options);
    const RawConnection connection(server->port());
    connection.send(get("/late"));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::thread other([this] {
        first_late().send(200, "late answer", "text/plain");
        first_late().send(500, "a second answer", "text/plain");
    });
    other.join();
    EXPECT_THAT(connection.read_until("late answer"), StartsWith("HTTP/1.1 200"));
    connection.send(post("/echo", "next"));
    EXPECT_THAT(connection.read_until("next"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServer, NoticesAClientThatLeft) {
    start();
    {
        const RawConnection connection(server->port());
        connection.send(get("/late"));
        EXPECT_FALSE(first_late().client_gone());
    }
    for (int i = 0; i < 500 && !first_late().client_gone(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(first_late().client_gone());
    first_late().send(200, "for nobody", "text/plain");
    EXPECT_THAT(once(post("/echo", "alive")), StartsWith("HTTP/1.1 200"));
}

// As `nc -N` does: nothing more will be sent, the answer is read all the same.
TEST_F(HttpServer, AClientThatOnlyEndsSendingGetsItsAnswer) {
    start();
    {
        const RawConnection connection(server->port());
        connection.send(get("/late"));
        connection.end_sending();
        for (int i = 0; i < 120 && !first_late().client_gone(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT_FALSE(first_late().client_gone());
        first_late().send(200, "late answer", "text/plain");
        EXPECT_THAT(connection.read_until("late answer"), HasSubstr("HTTP/1.1 200 OK"));
        EXPECT_TRUE(connection.closed_by_peer());
    }
    {
        const std::lock_guard lock(mutex);
        late.clear();
    }
    {
        const RawConnection connection(server->port());
        connection.send(get("/late"));
        connection.end_sending();
        EXPECT_FALSE(first_late().client_gone());
    }
    for (int i = 0; i < 500 && !first_late().client_gone(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(first_late().client_gone()) << "it closed whole, later";
}

TEST_F(HttpServer, RespondersMayOutliveTheServer) {
    start();
    const RawConnection connection(server->port());
    connection.send(get("/late"));
    const Responder responder = first_late();
    server->stop();
    EXPECT_TRUE(connection.closed_by_peer());
    server.reset();
    responder.send(200, "too late", "text/plain");
    EXPECT_TRUE(responder.client_gone());
}

TEST_F(HttpServer, AddressesThatCannotBeUsed) {
    start();
    const auto message = [](const std::string& listen) -> std::string {
        try {
            Server other({.listen = listen});
        } catch (const ConfigError& error) {
            EXPECT_EQ(exit_code(to_status(error).code), 2);
            return error.what();
        }
        return "accepted";
    };
    const std::string taken = "127.0.0.1:" + std::to_string(server->port());
    EXPECT_THAT(message(taken), HasSubstr("address " + taken + " is in use"));
    for (const char* bad :
         {"", "localhost", ":80", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:8x"}) {
        EXPECT_THAT(message(bad), HasSubstr("is not HOST:PORT")) << bad;
    }
    EXPECT_THAT(message("::1:30000"), HasSubstr("write [::1]:30000"));
    EXPECT_THAT(message("203.0.113.1:0"),
                HasSubstr("cannot be used"));  // nobody's address (documentation range)
}

}  // namespace
}  // namespace tandem::http
