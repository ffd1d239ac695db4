// One connection of the server: reads a request, hands it over, writes the answer, and again. Lives on the
// server's one thread; only Responder::State is touched by others.
#pragma once

#include <utility>  // before Asio: Boost 1.74 uses std::exchange without including it

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "common/admission.h"
#include "common/http/pace.h"
#include "common/http/server.h"
#include "common/http/target.h"

namespace tandem::http {

class Session;

struct Route {
    Handler handler;
    Access access = Access::user;
};

// Shared by sessions, responders and the server.
struct Loop {
    Loop(const ServerOptions& given, AccessRules access, std::size_t max_connections)
        : options(given), rules(std::move(access)), admission(max_connections) {}

    // Serves until there is nothing left to do. What one handler throws ends no other.
    void run();
    // Closes those that are slowest to read, but not the newest, while their answers take too much.
    void bound_answers();

    boost::asio::io_context context{1};
    const ServerOptions options;
    AccessRules rules;
    std::map<std::string, std::map<std::string, Route>> routes;  // path -> method
    std::atomic<std::size_t> bodies_bytes{0};                    // that requests have reserved
    // Of this loop's thread only.
    Admission admission;
    std::set<Session*> sessions;
    std::list<Session*> writing;    // large answers, those that have not moved for longest first
    std::size_t answers_bytes = 0;  // of `writing`
};

struct Answer {
    int status = 200;
    std::string body;
    std::string content_type;
    std::string allow = {};  // header Allow, for 405
};

struct Responder::State {
    State(std::shared_ptr<Loop> loop_in, std::weak_ptr<Session> session_in)
        : loop(std::move(loop_in)), session(std::move(session_in)) {}
    ~State();
    void send(Answer answer);

    std::shared_ptr<Loop> loop;
    std::weak_ptr<Session> session;
    std::atomic<bool> answered{false};
    std::atomic<bool> gone{false};
};

class Session : public std::enable_shared_from_this<Session> {
  public:
    using Protocol = boost::asio::generic::stream_protocol;  // TCP, or a Unix socket

    Session(Protocol::socket socket, std::shared_ptr<Loop> loop);
    ~Session();
    void read();
    void write(Answer answer);
    void close();

  private:
    using error_code = boost::system::error_code;
    using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
    struct Outgoing;
    void read_header();
    void on_header(error_code error);
    std::optional<Answer> refusal();  // what can be said before the body is read
    std::optional<Answer> reserve_body();
    const Route* route() const;
    void note_header();
    bool expects_continue() const;
    void read_body();
    void refuse(error_code error);
    void handle();
    void watch(const std::shared_ptr<Responder::State>& state);
    void probe(const std::weak_ptr<Responder::State>& state);
    bool answers_probes();
    void write_some();
    void end_writing();
    void on_written();
    void linger();

    boost::beast::basic_stream<Protocol> stream_;
    boost::asio::steady_timer next_probe_;
    std::shared_ptr<Loop> loop_;
    Admission::Place place_;
    // What is not body: a header, and between the chunks of a body their extensions.
    static constexpr std::size_t kBufferBytes = std::size_t{128} << 10;
    static constexpr std::uint32_t kHeaderBytes = std::uint32_t{64} << 10;  // as uvicorn's
    boost::beast::flat_buffer buffer_{kBufferBytes};
    std::optional<Parser> parser_;
    Access granted_ = Access::open;
    std::optional<Target> target_;  // of the request under way; nothing: it is malformed
    std::shared_ptr<const void> reservation_;
    std::optional<Pace> pace_;                              // of the body, then of the answer
    std::shared_ptr<Outgoing> answer_;                      // while it is written
    std::optional<std::list<Session*>::iterator> writing_;  // in Loop::writing
    bool keep_alive_ = false;
    bool head_ = false;
    bool interim_ = false;  // the client reads 100 Continue before its answer: HTTP/1.1
    bool old_ = false;      // HTTP/1.0, where a connection that is kept must be called so
    std::size_t discarded_bytes_ = 0;
};

}  // namespace tandem::http
