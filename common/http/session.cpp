#include "common/http/session.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
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
    end_silence();
    loop_->sessions.erase(this);
}

bool Loop::make_room() {
    if (sessions.size() < options.max_connections) return true;
    if (silent.empty()) return false;
    silent.front()->close();
    return true;
}

void Session::end_silence() {
    if (silent_) loop_->silent.erase(*silent_);
    silent_.reset();
}

void Session::turn_away() {
    keep_alive_ = false;
    write(error_answer(503, "too many connections", "unavailable"));
}

void Session::close() {
    end_silence();
    error_code ignored;
    stream_.socket().close(ignored);
}

void Session::read() {
    parser_.emplace();
    parser_->body_limit(loop_->options.max_body_bytes);
    reservation_.reset();
    end_silence();
    silent_ = loop_->silent.insert(loop_->silent.end(), this);
    stream_.expires_after(loop_->options.idle_timeout);
    bh::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); });
}

void Session::on_header(error_code error) {
    end_silence();
    if (error) return refuse(error);
    if (auto answer = refusal()) {
        keep_alive_ = false;
        head_ = false;
        return write(std::move(*answer));
    }
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

const Route* Session::route() const {
    const std::string target(parser_->get().target());
    const auto methods = loop_->routes.find(target.substr(0, target.find('?')));
    if (methods == loop_->routes.end()) return nullptr;
    const auto found = methods->second.find(std::string(parser_->get().method_string()));
    return found == methods->second.end() ? nullptr : &found->second;
}

std::optional<Answer> Session::refusal() {
    const auto& message = parser_->get();
    const auto field = [&](auto name) {
        const auto value = message[name];
        return std::string_view(value.data(), value.size());
    };
    const Route* asked = route();  // none: 404 or 405, which tell nothing
    const auto refused = refuse_access(loop_->rules, asked == nullptr ? Access::user : asked->access,
                                       {field(bh::field::host), field(bh::field::origin),
                                        field(bh::field::authorization), field("x-api-key")});
    if (refused) return error_answer(refused->status, refused->message, "invalid");
    return reserve_body();
}

std::optional<Answer> Session::reserve_body() {
    constexpr std::size_t kSmall = std::size_t{64} << 10;
    const auto length = parser_->content_length();
    std::size_t bytes = parser_->chunked() ? loop_->options.max_body_bytes : 0;
    if (length)
        bytes = static_cast<std::size_t>(std::min<std::uint64_t>(*length, loop_->options.max_body_bytes));
    if (bytes <= kSmall) return {};
    // The first one passes whatever its size, so that max_body_bytes alone says what is too large.
    const std::size_t before = loop_->bodies_bytes.fetch_add(bytes);
    reservation_ = std::shared_ptr<const void>(
        nullptr, [loop = loop_, bytes](const void*) { loop->bodies_bytes.fetch_sub(bytes); });
    if (before == 0 || before + bytes <= loop_->options.max_bodies_bytes) return {};
    reservation_.reset();
    return error_answer(503, "the bodies of other requests fill the memory that is set aside for them",
                        "unavailable");
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

    const auto methods = loop_->routes.find(request.path);
    if (methods == loop_->routes.end()) {
        return write(error_answer(404, "no such route: " + request.path, "not_found"));
    }
    const auto found = methods->second.find(request.method);
    if (found == methods->second.end()) {
        Answer answer = error_answer(405, request.path + " does not take " + request.method, "invalid");
        for (const auto& [method, unused] : methods->second)
            answer.allow += (answer.allow.empty() ? "" : ", ") + method;
        return write(std::move(answer));
    }
    request.body = std::move(parser_->get().body());
    request.reservation = std::move(reservation_);
    stream_.expires_never();
    auto state = std::make_shared<Responder::State>(loop_, weak_from_this());
    watch(state);
    const Responder responder(state);
    try {
        found->second.handler(request, responder);
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
    if (answer.status == 401) message->set(bh::field::www_authenticate, "Bearer");
    if (answer.status == 503) message->set(bh::field::retry_after, "1");
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
