// A small asynchronous HTTP/1.1 server: exact routes, keep-alive, limits. Handlers run on the server's thread
// and must not block for long; an answer may be sent later, from any thread, through the Responder.
//
//   what arrives                      answer
//   malformed HTTP                    400, connection closed
//   a body in a form not supported    415, 417, 501 (framing.h), connection closed
//   body over max_body_bytes          413, connection closed
//   header over 64 KiB                431, connection closed
//   wrong key, or a foreign page      401, 403 (access.h), before the body is read, connection closed
//   too much at once (below)          503 with Retry-After, connection closed
//   a client that is too slow         none, connection closed
//   unknown path / wrong method       404 / 405 with Allow
//   a handler that throws             the status of to_status(exception)
//   a Responder dropped unanswered    500
// Errors are {"error": {"message": …, "code": …}}. HEAD is answered where GET is, and a path with slashes at its end as
// without them; the target may be http://HOST/PATH (target.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/error.h"
#include "common/http/access.h"

namespace tandem::http {

struct ListenAddress {
    std::string host;  // without brackets
    int port = 0;
    std::string socket = {};  // a Unix socket's file; empty: TCP
};
// "HOST:PORT" (common/host_port.h) or "unix:/PATH"; throws ConfigError naming the option.
ListenAddress parse_listen_address(const std::string& text, const std::string& option = "--listen");

struct ServerOptions {
    // Port 0 takes a free one; a name is listened at with all its addresses (common/listening_sockets.h). Or unix:/PATH
    // (unix_socket.h).
    std::string listen = "127.0.0.1:30000";
    std::size_t max_body_bytes = std::size_t{64} << 20;
    // A connection that says nothing for so long, and waits for no answer, is closed.
    std::chrono::milliseconds idle_timeout{75'000};
    // A header must be there so long after its first byte; a body that is sent and an answer that is read must go on by
    // 64 KiB in that time, and not be too slow as a whole (pace.h). Otherwise the connection is closed.
    std::chrono::milliseconds stall_timeout{10'000};
    // In the bodies of all requests that are being received or worked on. Bodies up to 64 KiB do not count.
    std::size_t max_bodies_bytes = std::size_t{128} << 20;
    // In all answers that wait for their clients to read them; those up to 64 KiB do not count. Above that the
    // connection whose answer has not moved for longest is closed.
    std::size_t max_answers_bytes = std::size_t{128} << 20;
    // At most half of the descriptors that the process may have. Who makes room then: common/admission.h. A connection
    // that shows a key is known; without keys to show, one that has sent a whole request is served.
    std::size_t max_connections = 1024;
    std::string api_key = {};  // access.h
    std::string admin_api_key = {};
};

struct Request {
    std::string method;
    std::string path;   // as its route is called
    std::string query;  // after '?', not decoded
    std::string body;
    Access granted = Access::open;                 // the most that its client may ask for
    std::shared_ptr<const void> reservation = {};  // of the body's bytes; goes with the request
};

// The one answer to one request. Copies share it; the first send wins, later ones are ignored. Thread-safe,
// and may outlive the server.
class Responder {
  public:
    void send(int status, std::string body, const std::string& content_type = "application/json") const;
    void send(int status, const nlohmann::json& body) const;
    void fail(const Status& status) const;  // {"error": {"message", "code"}} with http_status(status.code)
    // The connection is closed, and an answer would not be read. A client that has only ended its sending gets its
    // answer; over HTTP/1.0 that cannot be told apart.
    bool client_gone() const;

    struct State;
    explicit Responder(std::shared_ptr<State> state) : state_(std::move(state)) {}

  private:
    std::shared_ptr<State> state_;
};

using Handler = std::function<void(Request&, Responder)>;  // may move from the request

class Server {
  public:
    // Binds and listens. Throws ConfigError when the address is malformed, unknown, or in use.
    explicit Server(const ServerOptions& options);
    ~Server();  // stop()
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Before start().
    void route(const std::string& method, const std::string& path, Handler handler,
               Access access = Access::user);
    void start();  // begins to accept
    // Stops accepting, closes every connection, joins. Idempotent; not from a handler.
    void stop();

    int port() const;         // 0: a Unix socket
    std::string url() const;  // "http://127.0.0.1:30000", "http://[::1]:30000", "unix:///PATH"
    bool loopback() const;    // only this machine can reach it

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

nlohmann::json error_json(const std::string& message, const std::string& code);

}  // namespace tandem::http
