// The server and clients that are slow on purpose: they lose their connection, and what they held is free again.
#include <gmock/gmock.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "common/http/server.h"
#include "tests/unit/common/http/raw_connection.h"

namespace tandem::http {
namespace {

using std::chrono::milliseconds;
using testing::StartsWith;

constexpr std::size_t kLarge = std::size_t{48} << 20;  // more than the system's buffers of a connection hold
constexpr std::size_t kMore = 65536;                   // has been read of it before

class SlowClients : public testing::Test {
  protected:
    void start(milliseconds stall, std::size_t max_answers = std::size_t{128} << 20) {
        ServerOptions options;
        options.listen = "127.0.0.1:0";
        options.stall_timeout = stall;
        options.max_answers_bytes = max_answers;
        server = std::make_unique<Server>(options);
        server->route("POST", "/size", [](const Request& r, Responder out) {
            out.send(200, std::to_string(r.body.size()), "text/plain");
        });
        server->route("GET", "/large", [](const Request&, Responder out) {
            out.send(200, std::string(kLarge, 'a'), "text/plain");
        });
        server->start();
    }
    // Sends `bytes` one at a time until the server closes; how many it took.
    static std::size_t dribble(const RawConnection& connection, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) {
            if (!connection.open()) return i;
            connection.send("a");
            std::this_thread::sleep_for(milliseconds(10));
        }
        return bytes;
    }
    static std::unique_ptr<RawConnection> ask_large(int port) {
        auto connection = std::make_unique<RawConnection>(port, 4096);
        connection->send("GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        EXPECT_THAT(connection->read_until("H"), StartsWith("H"));
        return connection;
    }

    std::unique_ptr<Server> server;
};

TEST_F(SlowClients, ADribblingHeaderIsClosed) {
    start(milliseconds(300));
    const RawConnection connection(server->port());
    connection.send("POST /size HTTP/1.1\r\nX: ");
    EXPECT_LT(dribble(connection, 1000), 1000u);
}

TEST_F(SlowClients, ADribblingBodyIsClosed) {
    start(milliseconds(300));
    for (const char* header :
         {"Content-Length: 50000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nffff\r\n"}) {
        const RawConnection connection(server->port());
        connection.send(std::string("POST /size HTTP/1.1\r\nHost: localhost\r\n") + header);
        EXPECT_LT(dribble(connection, 1000), 1000u) << header;
    }
}

TEST_F(SlowClients, ABodyThatGoesOnIsTaken) {
    start(milliseconds(1000));
    const RawConnection connection(server->port());
    connection.send("POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1400000\r\n\r\n");
    for (int i = 0; i < 20; ++i) {
        connection.send(std::string(70'000, 'a'));
        std::this_thread::sleep_for(milliseconds(100));
    }
    EXPECT_THAT(connection.read_until("1400000"), StartsWith("HTTP/1.1 200"));
}

TEST_F(SlowClients, AnAnswerThatIsNotReadIsDropped) {
    start(milliseconds(300));
    const auto connection = ask_large(server->port());
    for (int i = 0; i < 20; ++i) {
        connection->read_some(1);
        std::this_thread::sleep_for(milliseconds(100));
    }
    EXPECT_LT(connection->count_to_end(), kLarge - kMore);
}

TEST_F(SlowClients, AnswersShareABudgetAndTheSlowestReaderGoes) {
    start(milliseconds(30'000), kLarge + kLarge / 2);
    const auto first = ask_large(server->port());
    const auto second = ask_large(server->port());
    EXPECT_LT(first->count_to_end(), kLarge - kMore);
    EXPECT_GT(second->count_to_end(), kLarge - kMore);
}

}  // namespace
}  // namespace tandem::http
