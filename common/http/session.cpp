#include "common/http/session.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>

namespace tandem::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bh = boost::beast::http;

namespace {

constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr std::size_t kLingerBytes = std::size_t{256} << 20;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Bytes that are not UTF-8 (a path, an error's text) are replaced instead of throwing.
std::string to_text(const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Answer error_answer(int status, const std::string& message, const std::string& code) {
    return {status, to_text(error_json(message, code)), "application/json", ""};
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, std::shared_ptr<Loop> loop)
    : stream_(std::move(socket)), loop_(std::move(loop)) {
    boost::system::error_code ignored;
    stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    loop_->sessions.insert(this);
}

Session::~Session() {
    loop_->sessions.erase(this);
}

void Session::close() {
    error_code ignored;
    stream_.socket().close(ignored);
}

void Session::read() {
    parser_.emplace();
    parser_->body_limit(loop_->options.max_body_bytes);
    stream_.expires_after(loop_->options.idle_timeout);
    bh::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); });
}

void Session::on_header(error_code error) {
    if (error) return refuse(error);
    const auto read_body = [self = shared_from_this()] {
        bh::async_read(self->stream_, self->buffer_, *self->parser_,
                       [self](error_code failed, std::size_t) { self->on_read(failed); });
    };
    if (!beast::iequals(parser_->get()[bh::field::expect], "100-continue")) return read_body();
    asio::async_write(stream_, asio::buffer(kContinue),
                      [read_body, self = shared_from_this()](error_code failed, std::size_t) {
                          if (!failed) read_body();
                      });
}

void Session::on_read(error_code error) {
    if (error) return refuse(error);
    handle();
}

// Errors of reading: some have an answer, others mean that the peer is gone or silent.
void Session::refuse(error_code error) {
    keep_alive_ = false;
    head_ = false;
    if (error == bh::error::body_limit) {
        return write(error_answer(
            413, fmt::format("the body is larger than {} bytes", loop_->options.max_body_bytes), "invalid"));
    }
    const bool malformed = error.category() == make_error_code(bh::error::bad_method).category() &&
                           error != bh::error::end_of_stream && error != bh::error::partial_message;
    if (malformed) return write(error_answer(400, "malformed HTTP request: " + error.message(), "invalid"));
    close();
}

void Session::handle() {
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    head_ = message.method() == bh::verb::head;
    const std::string target(message.target());
    const auto question = target.find('?');
    Request request;
    request.method = std::string(message.method_string());
    request.path = target.substr(0, question);
    if (question != std::string::npos) request.query = target.substr(question + 1);

    const auto route = loop_->routes.find(request.path);
    if (route == loop_->routes.end()) {
        return write(error_answer(404, "no such route: " + request.path, "not_found"));
    }
    const auto handler = route->second.find(request.method);
    if (handler == route->second.end()) {
        Answer answer = error_answer(405, request.path + " does not take " + request.method, "invalid");
        for (const auto& [method, unused] : route->second)
            answer.allow += (answer.allow.empty() ? "" : ", ") + method;
        return write(std::move(answer));
    }
    request.body = std::move(parser_->get().body());
    stream_.expires_never();
    auto state = std::make_shared<Responder::State>(loop_, weak_from_this());
    watch(state);
    const Responder responder(state);
    try {
        handler->second(request, responder);
    } catch (const std::exception& error) {
        responder.fail(to_status(error));
    }
}

// While the answer is made, notices that the peer has closed. Bytes of a next request end the watch and stay
// unread.
void Session::watch(std::shared_ptr<Responder::State> state) {
    stream_.socket().async_wait(asio::ip::tcp::socket::wait_read,
                                [self = shared_from_this(), state = std::weak_ptr(state)](error_code error) {
                                    const auto waiting = state.lock();
                                    char byte = 0;
                                    const bool closed =
                                        error || ::recv(self->stream_.socket().native_handle(), &byte, 1,
                                                        MSG_PEEK | MSG_DONTWAIT) == 0;
                                    if (waiting && closed) waiting->gone = true;
                                });
}

void Session::write(Answer answer) {
    using Message = bh::response<bh::string_body>;
    auto message = std::make_shared<Message>(static_cast<bh::status>(answer.status), 11);
    message->set(bh::field::server, "tandem");
    message->set(bh::field::content_type, answer.content_type);
    if (!answer.allow.empty()) message->set(bh::field::allow, answer.allow);
    message->keep_alive(keep_alive_);
    message->body() = std::move(answer.body);
    message->prepare_payload();
    if (head_) message->body().clear();  // Content-Length stays that of the GET
    stream_.expires_after(loop_->options.idle_timeout);
    bh::async_write(stream_, *message, [self = shared_from_this(), message](error_code error, std::size_t) {
        if (error) return self->close();
        self->on_written(self->keep_alive_);
    });
}

void Session::on_written(bool keep_alive) {
    if (keep_alive) return read();
    error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLingerTime);
    linger();
}

// Reads and drops what the peer still sends: closing over unread bytes would reset the connection and lose
// the answer.
void Session::linger() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(65536),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                                self->discarded_bytes_ += bytes;
                                if (error || self->discarded_bytes_ > kLingerBytes) return self->close();
                                self->linger();
                            });
}

Responder::State::~State() {
    if (!answered) send(error_answer(500, "the request was dropped without an answer", "internal"));
}

void Responder::State::send(Answer answer) {
    if (answered.exchange(true)) return;
    asio::post(loop->context, [session = session, answer = std::move(answer)]() mutable {
        if (const auto alive = session.lock()) alive->write(std::move(answer));
    });
}

void Responder::send(int status, std::string body, const std::string& content_type) const {
    state_->send({status, std::move(body), content_type, ""});
}

void Responder::send(int status, const nlohmann::json& body) const {
    send(status, body.dump());
}

void Responder::fail(const Status& status) const {
    send(http_status(status.code), error_json(status.message, std::string(code_name(status.code))));
}

bool Responder::client_gone() const {
    return state_->gone;
}

nlohmann::json error_json(const std::string& message, const std::string& code) {
    return {{"error", {{"message", message}, {"code", code}}}};
}

}  // namespace tandem::http
