// A small blocking HTTP/1.1 client: one connection, kept alive between calls. Not thread-safe; one Client a
// thread. Nothing is retried: a connection found closed before the request is sent is opened again, and every
// failure after that is the caller's, because a request may have been carried out.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/deadline.h"

namespace tandem::http {

struct Url {
    std::string host;  // without brackets
    std::string port;
    std::string prefix;       // path without a trailing slash, usually empty
    std::string socket = {};  // a Unix socket's file; empty: TCP
};
// "http://HOST[:PORT][/PREFIX]", HOST an IPv6 address in brackets too, or "unix:///PATH"; throws BadInput, which
// quotes it as the user has written it: as `written`, where that is another URL that this one was made of.
Url parse_url(const std::string& url, const std::string& written = "");

struct Response {
    int status = 0;
    std::string content_type = {};
    std::string body = {};
    std::string location = {};  // where a redirect leads: it is not followed
};

inline constexpr std::size_t kMostStateBytes = std::size_t{16} << 20;

class Client {
  public:
    // Connects on the first request; throws BadInput. key: sent as Authorization: Bearer, without control
    // characters; empty: none. An answer whose body is larger than max_answer_bytes is a TransportError: the default is for
    // what a server says of its state; whoever asks for samples says how much that may be.
    explicit Client(const std::string& url, const std::string& key = {},
                    std::size_t max_answer_bytes = kMostStateBytes);
    ~Client();
    Client(Client&&) noexcept;
    Client& operator=(Client&&) noexcept;

    // Any status is an answer but the interim ones (1xx), which are passed over. Throws TransportError naming URL and target
    // (connection refused, reset, malformed or oversize answer), DeadlineExceeded when `deadline` passes first, in looking up the name too; the
    // connection is then closed.
    Response request(const std::string& method, const std::string& target, const std::string& body,
                     Deadline deadline);

    // As above, and a status that is not 2xx throws too: TransportError with the server's message, retryable
    // for 503 and 504; so does an answer that is not JSON.
    nlohmann::json get_json(const std::string& target, Deadline deadline);
    nlohmann::json post_json(const std::string& target, const nlohmann::json& body, Deadline deadline);
    // As post_json; a server that takes nothing for now is asked again until it does (unavailable.h).
    nlohmann::json post_json_when_available(const std::string& target, const nlohmann::json& body,
                                            Deadline deadline);

    // For the requests that follow. JSON may hold a value for 16 bytes of it.
    void limit_answers(std::size_t max_answer_bytes);

    const std::string& url() const;
    void close();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::http
