// Who keeps a connection when there are too many: strangers in every state, with keys to show and without.
#include <gmock/gmock.h>

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/common/http/http_server.h"

namespace tandem::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST_F(HttpServer, TheConnectionThatIsSilentLongestMakesRoom) {
    ServerOptions options;
    options.max_connections = 8;
    start(options);
    std::vector<std::unique_ptr<RawConnection>> silent;
    for (int i = 0; i < 40; ++i) {
        silent.push_back(std::make_unique<RawConnection>(server->port()));
        silent.back()->send("POST /echo HTTP/1.1\r\nContent-Le");
        if (i % 8 == 7) {
            EXPECT_THAT(once(post("/echo", "hello")), StartsWith("HTTP/1.1 200")) << i;
        }
    }
    EXPECT_TRUE(silent.front()->closed_by_peer());
}

// Strangers in every state that a connection can be in, and one who has a key among them.
TEST_F(HttpServer, WhoHasNoKeyKeepsNobodyOutWhoHasOne) {
    ServerOptions options;
    options.max_connections = 8;
    options.api_key = "secret";
    options.listen = "127.0.0.1:0";
    server = std::make_unique<Server>(options);
    server->route(
        "GET", "/open", [](const Request&, Responder out) { out.send(200, "yes", "text/plain"); },
        Access::open);
    server->route(
        "GET", "/work",
        [this](const Request&, Responder out) {
            const std::lock_guard lock(mutex);
            late.push_back(out);
        },
        Access::open);
    server->route("GET", "/user", [](const Request&, Responder out) { out.send(200, "yes", "text/plain"); });
    server->start();
    const std::string head = "GET /user HTTP/1.1\r\nHost: localhost\r\nx-api-key: secret\r\n\r\n";
    const RawConnection keeps(server->port());
    keeps.send(head);
    EXPECT_THAT(keeps.read_until("yes"), StartsWith("HTTP/1.1 200"));
    const RawConnection works(server->port());
    works.send("GET /work HTTP/1.1\r\nHost: localhost\r\nx-api-key: secret\r\n\r\n");
    first_late();
    const std::string host = " HTTP/1.1\r\nHost: localhost\r\n";
    const std::vector<std::string> states = {
        "",
        "GET /user HT",
        "GET /open" + host + "Content-Length: 9\r\n\r\nxx",
        "GET /open" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nx",
        get("/work"),
        get("/open"),
        get("/nothing"),
        "POST /user" + host + "x-api-key: guess\r\nContent-Length: 9\r\n\r\nx"};
    std::list<RawConnection> strangers;
    for (const std::string& state : states) {
        for (int i = 0; i < 20; ++i) {
            strangers.emplace_back(server->port());
            strangers.back().send(state);
            if (i % 5 == 4) {
                EXPECT_THAT(once(head), StartsWith("HTTP/1.1 200")) << state;
            }
        }
    }
    keeps.send(head);
    EXPECT_THAT(keeps.read_until("yes"), StartsWith("HTTP/1.1 200"));
    first_late().send(200, "at last", "text/plain");
    EXPECT_THAT(works.read_until("at last"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServer, AnOpenRouteTakesNoBodyWithoutTheKey) {
    ServerOptions options;
    options.api_key = "secret";
    options.listen = "127.0.0.1:0";
    server = std::make_unique<Server>(options);
    server->route(
        "POST", "/open", [](const Request& r, Responder out) { out.send(200, r.body, "text/plain"); },
        Access::open);
    server->start();
    const auto ask = [&](const std::string& header) {
        return once("POST /open HTTP/1.1\r\nHost: localhost\r\n" + header + "Content-Length: 2\r\n\r\nhi");
    };
    EXPECT_THAT(ask(""), StartsWith("HTTP/1.1 400"));
    EXPECT_THAT(ask("x-api-key: secret\r\n"), StartsWith("HTTP/1.1 200"));
}

// Without keys who has sent a whole request is served, and who has not makes room.
TEST_F(HttpServer, HalfBodiesMakeRoomWithoutKeysToo) {
    ServerOptions options;
    options.max_connections = 8;
    start(options);
    const RawConnection at_work(server->port());
    at_work.send(get("/late"));
    first_late();
    std::list<RawConnection> halves;
    for (int i = 0; i < 40; ++i) {
        halves.emplace_back(server->port());
        halves.back().send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nxx");
        if (i % 8 == 7) {
            EXPECT_THAT(once(post("/echo", "hello")), StartsWith("HTTP/1.1 200")) << i;
        }
    }
    EXPECT_TRUE(halves.front().closed_by_peer());
    first_late().send(200, "at last", "text/plain");
    EXPECT_THAT(at_work.read_until("at last"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServer, WhenAllConnectionsAreAtWorkANewOneGets503) {
    ServerOptions options;
    options.max_connections = 8;  // one is for those who have asked nothing yet
    start(options);
    std::vector<std::unique_ptr<RawConnection>> at_work;
    for (std::size_t i = 0; i < 7; ++i) {
        at_work.push_back(std::make_unique<RawConnection>(server->port()));
        at_work.back()->send(get("/late"));
        for (std::size_t there = 0; there <= i;) {
            const std::lock_guard lock(mutex);
            there = late.size();
        }
    }
    const RawConnection more(server->port());
    more.send(get("/query"));
    EXPECT_THAT(more.read_until("}}"),
                testing::AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 1")));
    first_late().send(200, "at last", "text/plain");
    EXPECT_THAT(at_work.front()->read_until("at last"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace tandem::http
