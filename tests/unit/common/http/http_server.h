// A server whose routes answer in every way, and what tests say to it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/http/server.h"
#include "tests/unit/common/http/raw_connection.h"

namespace tandem::http {

class HttpServer : public testing::Test {
  protected:
    void start(ServerOptions options = {}) {
        options.listen = "127.0.0.1:0";
        server = std::make_unique<Server>(options);
        server->route("POST", "/echo",
                      [](const Request& r, Responder out) { out.send(200, r.body, "text/plain"); });
        server->route("GET", "/query",
                      [](const Request& r, Responder out) { out.send(200, r.query, "text/plain"); });
        server->route("GET", "/invalid", [](const Request&, Responder) { throw BadInput("bad thing"); });
        server->route("GET", "/bug",
                      [](const Request&, Responder) { throw InvalidArgument("not the sender's fault"); });
        server->route("GET", "/crash", [](const Request&, Responder) { throw std::runtime_error("broken"); });
        server->route("GET", "/drop", [](const Request&, Responder) {});
        server->route("GET", "/late", [this](const Request&, Responder out) {
            const std::lock_guard lock(mutex);
            late.push_back(out);
        });
        server->start();
    }
    std::string once(const std::string& bytes) {
        const RawConnection connection(server->port());
        connection.send(bytes);
        return connection.read_until("\r\n\r\n");
    }
    static std::string post(const std::string& path, const std::string& body) {
        return "POST " + path +
               " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
               body;
    }
    static std::string get(const std::string& path) {
        return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    }

    // The responder of the first request to /late, once it is there.
    Responder first_late() {
        for (;;) {
            const std::lock_guard lock(mutex);
            if (!late.empty()) return late.front();
        }
    }

    std::mutex mutex;
    std::vector<Responder> late;
    std::unique_ptr<Server> server;
};

}  // namespace tandem::http
