#include "common/http/client.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>  // before Asio: Boost 1.74 uses std::exchange without including it

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/dial.h"
#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/host_port.h"
#include "common/http/error_text.h"
#include "common/http/unavailable.h"
#include "common/json_text.h"
#include "common/socket_address.h"

namespace tandem::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using nlohmann::json;
using Stream = beast::basic_stream<asio::generic::stream_protocol>;  // TCP, or a Unix socket

constexpr std::size_t kMaxBufferBytes = std::size_t{1}
                                        << 20;  // of an answer's header, and of chunk extensions

constexpr std::uint32_t kMostHeaderBytes = std::uint32_t{64} << 10;  // of an answer: cookies of proxies

// What follows the error's own text; empty where that says enough.
const char* what_to_do(const error_code& error) {
    if (error == asio::error::connection_refused)
        return ": nothing listens there; is it up, and is this its address?";
    if (error == asio::error::connection_reset || error == asio::error::broken_pipe ||
        error == beast::http::error::end_of_stream || error == beast::http::error::partial_message)
        return ": it went away before it had answered; has it ended, or restarted?";
    return "";
}

// "100 Continue", "103 Early Hints": proxies send them unasked, and the answer follows.
bool is_interim(unsigned status) {
    return status / 100 == 1 && status != 101;
}

}  // namespace

struct Client::Impl {
    Impl(const std::string& text, const std::string& api_key, std::size_t most)
        : url(text), key(api_key), parts(parse_url(text)), max_answer_bytes(most) {
        // It would end its header's line; a key file written on Windows ends in one. The key itself is not printed.
        const auto control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
        if (std::any_of(key.begin(), key.end(), control))
            throw BadInput("the API key holds a line break or another control character: remove it");
    }

    // Runs the io_context until the operation that was just started has called back with its error code.
    template <typename Start>
    error_code run(Deadline deadline, Start start) {
        stream->expires_at(deadline.at());
        error_code result = asio::error::would_block;
        start([&](error_code ec, auto&&...) { result = ec; });
        context.restart();
        context.run();
        return result;
    }

    [[noreturn]] void fail(const std::string& phase, const error_code& error) {
        close();
        const std::string peer = url;
        if (error == beast::error::timeout) {
            throw DeadlineExceeded(
                peer, phase, "no answer before the deadline: it hangs, or is busy and needs a longer one",
                true);
        }
        throw TransportError(peer, phase, error.message() + what_to_do(error), true);
    }

    void close() {
        if (!stream) return;
        error_code ignored;
        stream->socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
        stream.reset();
        buffer.clear();
    }

    // A kept-alive connection that the server has closed, or that holds bytes that were not asked for, is of
    // no use.
    bool usable() {
        if (!stream || buffer.size() > 0) return false;
        char byte = 0;
        const auto got = ::recv(stream->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }

    void connect(Deadline deadline) {
        close();
        if (!parts.socket.empty()) return connect_to_file(deadline);
        FileDescriptor dialled =
            std::move(dial({parts.host, std::stoi(parts.port), url, "connect"}, deadline).front());
        const int family = SocketAddress::of_this_end(dialled.get()).family();
        stream.emplace(context);
        stream->socket().assign({family, IPPROTO_TCP}, dialled.get());
        dialled.release();
        error_code ignored;
        stream->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    }

    void connect_to_file(Deadline deadline) {
        const asio::local::stream_protocol::endpoint file(parts.socket);
        stream.emplace(context);
        FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!socket) throw SystemError("socket", errno);
        stream->socket().assign(file.protocol(), socket.get());
        socket.release();
        const error_code error = run(deadline, [&](auto done) { stream->async_connect(file, done); });
        if (error) fail("connect", error);
    }

    std::string url;
    std::string key;
    Url parts;
    std::size_t max_answer_bytes;
    asio::io_context context{1};
    std::optional<Stream> stream;
    beast::flat_buffer buffer{kMaxBufferBytes};
};

void Client::limit_answers(std::size_t max_answer_bytes) {
    impl_->max_answer_bytes = max_answer_bytes;
}

Client::Client(const std::string& url, const std::string& key, std::size_t max_answer_bytes)
    : impl_(std::make_unique<Impl>(url, key, max_answer_bytes)) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

const std::string& Client::url() const {
    return impl_->url;
}
void Client::close() {
    impl_->close();
}

Response Client::request(const std::string& method, const std::string& target, const std::string& body,
                         Deadline deadline) {
    Impl& self = *impl_;
    const std::string phase = method + " " + target;
    if (deadline.passed())
        throw DeadlineExceeded(self.url, phase, "the deadline had passed before it was sent", true);
    if (!self.usable()) self.connect(deadline);

    beast::http::request<beast::http::string_body> request;
    request.method_string(method);
    request.target(self.parts.prefix + target);
    request.version(11);
    request.set(beast::http::field::host, self.parts.port.empty()
                                              ? to_url_host(self.parts.host)
                                              : to_host_port(self.parts.host, self.parts.port));
    if (!self.key.empty()) request.set(beast::http::field::authorization, "Bearer " + self.key);
    if (!body.empty()) request.set(beast::http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
    // The answer to a refused body may be here before the body is sent: read it even if the write failed.
    const error_code written =
        self.run(deadline, [&](auto done) { beast::http::async_write(*self.stream, request, done); });
    if (written == beast::error::timeout) self.fail(phase, written);

    std::optional<beast::http::response_parser<beast::http::string_body>> parser;
    // The header alone first: Beast 1.74 forgets the limit when header and body come together.
    error_code read;
    do {
        if (deadline.passed()) self.fail(phase, beast::error::timeout);  // of one who never stops announcing
        parser.emplace();
        parser->body_limit(self.max_answer_bytes);
        parser->header_limit(kMostHeaderBytes);
        read = self.run(deadline, [&](auto done) {
            beast::http::async_read_header(*self.stream, self.buffer, *parser, done);
        });
    } while (!read && is_interim(parser->get().result_int()));
    if (!read) {
        read = self.run(
            deadline, [&](auto done) { beast::http::async_read(*self.stream, self.buffer, *parser, done); });
    }
    if (read == beast::http::error::body_limit) {
        self.close();
        throw TransportError(self.url, phase,
                             fmt::format("the answer is larger than {} bytes", self.max_answer_bytes));
    }
    if (read) self.fail(phase, written ? written : read);

    Response response;
    response.status = static_cast<int>(parser->get().result_int());
    response.content_type = std::string(parser->get()[beast::http::field::content_type]);
    response.body = std::move(parser->get().body());
    if (response.status / 100 == 3)
        response.location = std::string(parser->get()[beast::http::field::location]);
    if (!parser->get().keep_alive() || written) self.close();
    return response;
}

namespace {

constexpr std::size_t kBytesOfAValue =
    16;  // of an answer's JSON: what takes less holds more than anybody asked for

json checked(const Client& client, const std::string& phase, const Response& response,
             std::size_t most_bytes) {
    if (response.status < 200 || response.status >= 300) {
        throw TransportError(client.url(), phase, error_text(response),
                             response.status == 503 || response.status == 504);
    }
    try {
        return parse_json_text(response.body, {.values = most_bytes / kBytesOfAValue});
    } catch (const BadInput& error) {
        throw TransportError(client.url(), phase, std::string("the answer ") + error.what());
    }
}

}  // namespace

json Client::get_json(const std::string& target, Deadline deadline) {
    return checked(*this, "GET " + target, request("GET", target, "", deadline), impl_->max_answer_bytes);
}

json Client::post_json(const std::string& target, const json& body, Deadline deadline) {
    return checked(*this, "POST " + target, request("POST", target, body.dump(), deadline),
                   impl_->max_answer_bytes);
}

json Client::post_json_when_available(const std::string& target, const json& body, Deadline deadline) {
    const std::string text = body.dump();
    const Response response =
        ask_until_available([&] { return request("POST", target, text, deadline); }, deadline);
    return checked(*this, "POST " + target, response, impl_->max_answer_bytes);
}

}  // namespace tandem::http
