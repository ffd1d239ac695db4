#include "common/http/session.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/http/framing.h"
#include "common/json_text.h"
#include "common/log.h"

namespace tandem::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bh = boost::beast::http;

namespace {

constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr auto kProbeTime = std::chrono::milliseconds(500);
constexpr std::size_t kLingerBytes = std::size_t{256} << 20;
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;  // of a body or an answer: not counted
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

Answer error_answer(int status, const std::string& message, const std::string& code) {
    return {status, text_of_json(error_json(message, code)), "application/json", ""};
}

Answer too_many() {
    return error_answer(503, "too many connections", "unavailable");
}

}  // namespace

struct Session::Outgoing {
    bh::response<bh::string_body> message;
    bh::response_serializer<bh::string_body> serializer{message};
    std::size_t bytes = 0;  // of the body
};

Session::Session(Protocol::socket socket, std::shared_ptr<Loop> loop)
    : stream_(std::move(socket)),
      next_probe_(loop->context),
      loop_(std::move(loop)),
      place_(loop_->admission, peer_group(stream_.socket().native_handle()), [this] { close(); }) {
    boost::system::error_code ignored;
    stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);  // a Unix socket has none
    loop_->sessions.insert(this);
}

Session::~Session() {
    end_writing();
    loop_->sessions.erase(this);
}

void Loop::run() {
    for (;;) {
        try {
            context.run();
            return;
        } catch (const std::exception& error) {
            log_error("HTTP server: {}", error.what());
        }
    }
}

void Loop::bound_answers() {
    while (answers_bytes > options.max_answers_bytes && writing.size() > 1) writing.front()->close();
}

void Session::close() {
    place_.give_up();
    end_writing();
    next_probe_.cancel();
    error_code ignored;
    stream_.socket().close(ignored);
}

void Session::read() {
    parser_.emplace();
    parser_->body_limit(loop_->options.max_body_bytes);
    parser_->header_limit(kHeaderBytes);
    head_ = old_ = false;
    reservation_.reset();
    place_.rest();
    stream_.expires_after(loop_->options.idle_timeout);
    if (buffer_.size() > 0) return read_header();  // of a request that came with the one before
    constexpr std::size_t kFirstBytes = 4096;
    stream_.async_read_some(buffer_.prepare(kFirstBytes),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                                self->buffer_.commit(bytes);
                                error ? self->close() : self->read_header();
                            });
}

void Session::read_header() {
    stream_.expires_after(std::min(loop_->options.stall_timeout, loop_->options.idle_timeout));
    bh::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); });
}

void Session::on_header(error_code error) {
    if (error) return refuse(error);
    note_header();
    if (auto answer = refusal()) {
        keep_alive_ = false;
        return write(std::move(*answer));
    }
    pace_.emplace(loop_->options.idle_timeout, loop_->options.stall_timeout);
    if (!expects_continue()) return read_body();
    asio::async_write(stream_, asio::buffer(kContinue),
                      [self = shared_from_this()](error_code failed, std::size_t) {
                          failed ? self->close() : self->read_body();
                      });
}

void Session::note_header() {
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    head_ = message.method() == bh::verb::head;
    interim_ = message.version() >= 11;
    old_ = !interim_;
    const auto target = message.target();
    target_ = parse_target({target.data(), target.size()});
}

bool Session::expects_continue() const {
    return interim_ && !words_of(parser_->get(), bh::field::expect).empty();
}

// HEAD is asked where GET is.
const Route* Session::route() const {
    if (!target_) return nullptr;
    const auto methods = loop_->routes.find(target_->path);
    if (methods == loop_->routes.end()) return nullptr;
    auto found = methods->second.find(std::string(parser_->get().method_string()));
    if (found == methods->second.end() && head_) found = methods->second.find("GET");
    return found == methods->second.end() ? nullptr : &found->second;
}

std::optional<Answer> Session::refusal() {
    const auto& message = parser_->get();
    const auto field = [&](auto name) {
        const auto value = message[name];
        return std::string_view(value.data(), value.size());
    };
    if (!target_)
        return error_answer(400, "the request's target is neither /PATH nor http://HOST/PATH", "invalid");
    const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) > 0;
    auto refused = refuse_framing(message, message.version() % 10, has_body);
    const Route* asked = route();  // none: 404 or 405, which tell nothing
    const auto access = asked == nullptr ? Access::user : asked->access;
    const Credentials given{
        target_->authority ? std::string_view(*target_->authority) : field(bh::field::host),
        field(bh::field::origin), field(bh::field::authorization), field("x-api-key")};
    const bool known = shows_key(loop_->rules, given);
    granted_ = granted_access(loop_->rules, given);
    if (!refused) refused = refuse_access(loop_->rules, access, given);
    if (!refused && has_body && !known && access == Access::open && !loop_->rules.api_key.empty())
        refused = Refusal{400, target_->path + " takes a body only with the API key"};
    if (refused) return error_answer(refused->status, refused->message, "invalid");
    if (known && !place_.prove()) return too_many();
    return reserve_body();
}

std::optional<Answer> Session::reserve_body() {
    const auto length = parser_->content_length();
    std::size_t bytes = parser_->chunked() ? loop_->options.max_body_bytes : 0;
    if (length)
        bytes = static_cast<std::size_t>(std::min<std::uint64_t>(*length, loop_->options.max_body_bytes));
    if (bytes <= kSmallBytes) return {};
    // The first one passes whatever its size, so that max_body_bytes alone says what is too large.
    const std::size_t before = loop_->bodies_bytes.fetch_add(bytes);
    reservation_ = std::shared_ptr<const void>(
        nullptr, [loop = loop_, bytes](const void*) { loop->bodies_bytes.fetch_sub(bytes); });
    if (before == 0 || before + bytes <= loop_->options.max_bodies_bytes) return {};
    reservation_.reset();
    return error_answer(503, "the bodies of other requests fill the memory that is set aside for them",
                        "unavailable");
}

void Session::read_body() {
    if (parser_->is_done()) return handle();
    stream_.expires_at(pace_->limit());
    bh::async_read_some(stream_, buffer_, *parser_,
                        [self = shared_from_this()](error_code error, std::size_t bytes) {
                            if (error) return self->refuse(error);
                            self->pace_->moved(bytes);
                            self->read_body();
                        });
}

// Errors of reading: some have an answer, others mean that the peer is gone or silent.
void Session::refuse(error_code error) {
    keep_alive_ = false;
    if (error == bh::error::header_limit)
        return write(
            error_answer(431, fmt::format("the header is larger than {} bytes", kHeaderBytes), "invalid"));
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
    Request request;
    request.method = std::string(parser_->get().method_string());
    request.path = target_->path;
    request.query = std::move(target_->query);
    request.granted = granted_;
    const auto methods = loop_->routes.find(request.path);
    if (methods == loop_->routes.end()) {
        return write(error_answer(404, "no such route: " + request.path, "not_found"));
    }
    const Route* const found = route();
    if (found == nullptr) {
        Answer answer = error_answer(405, request.path + " does not take " + request.method, "invalid");
        for (const auto& [method, unused] : methods->second)
            answer.allow += (answer.allow.empty() ? "" : ", ") + (method == "GET" ? "GET, HEAD" : method);
        return write(std::move(answer));
    }
    // With a key to show, who has not stays a guest.
    if (loop_->rules.api_key.empty() && !place_.serve()) {
        keep_alive_ = false;
        return write(too_many());
    }
    request.body = std::move(parser_->get().body());
    request.reservation = std::move(reservation_);
    stream_.expires_never();
    auto state = std::make_shared<Responder::State>(loop_, weak_from_this());
    watch(state);
    const Responder responder(state);
    try {
        found->handler(request, responder);
    } catch (const std::exception& error) {
        responder.fail(to_status(error));
    }
}

// While the answer is made, notices that the peer has closed. Bytes of a next request end the watch and stay
// unread.
void Session::watch(const std::shared_ptr<Responder::State>& state) {
    stream_.socket().async_wait(asio::socket_base::wait_read,
                                [self = shared_from_this(), state = std::weak_ptr(state)](error_code error) {
                                    char byte = 0;
                                    const bool more = !error && ::recv(self->stream_.socket().native_handle(),
                                                                       &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
                                    if (!more) self->probe(state);
                                });
}

// The client sends no more: it has closed, or only ended its sending and waits for the answer. One that has closed
// resets the connection when it is sent something, and that is seen by the next time.
void Session::probe(const std::weak_ptr<Responder::State>& state) {
    const auto waiting = state.lock();
    if (!waiting || waiting->answered) return;
    if (!interim_ || !answers_probes()) {
        waiting->gone = true;
        return;
    }
    next_probe_.expires_after(kProbeTime);
    next_probe_.async_wait([self = shared_from_this(), state](error_code) { self->probe(state); });
}

bool Session::answers_probes() {
    if (!stream_.socket().is_open()) return false;
    pollfd socket{stream_.socket().native_handle(), 0, 0};
    if (::poll(&socket, 1, 0) > 0) return false;  // it hung up
    const auto sent = ::send(socket.fd, kContinue.data(), kContinue.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(kContinue.size()) || (sent < 0 && errno == EAGAIN);
}

void Session::write(Answer answer) {
    answer_ = std::make_shared<Outgoing>();
    auto& message = answer_->message;
    message.result(static_cast<bh::status>(answer.status));
    message.set(bh::field::server, "tandem");
    message.set(bh::field::content_type, answer.content_type);
    if (!answer.allow.empty()) message.set(bh::field::allow, answer.allow);
    if (answer.status == 401) message.set(bh::field::www_authenticate, "Bearer");
    if (answer.status == 415) message.set(bh::field::accept_encoding, "identity");
    if (answer.status == 503) message.set(bh::field::retry_after, "1");
    message.keep_alive(keep_alive_);
    if (keep_alive_ && old_) message.set(bh::field::connection, "keep-alive");
    message.body() = std::move(answer.body);
    message.prepare_payload();
    if (head_) message.body().clear();  // Content-Length stays that of the GET
    answer_->bytes = message.body().size();
    pace_.emplace(loop_->options.idle_timeout, loop_->options.stall_timeout);
    if (answer_->bytes > kSmallBytes) {
        writing_ = loop_->writing.insert(loop_->writing.end(), this);
        loop_->answers_bytes += answer_->bytes;
        loop_->bound_answers();
    }
    write_some();
}

void Session::write_some() {
    stream_.expires_at(pace_->limit());
    bh::async_write_some(stream_, answer_->serializer,
                         [self = shared_from_this(), answer = answer_](error_code error, std::size_t bytes) {
                             if (error || !self->answer_) return self->close();
                             self->pace_->moved(bytes);
                             auto& writing = self->loop_->writing;
                             if (self->writing_) writing.splice(writing.end(), writing, *self->writing_);
                             answer->serializer.is_done() ? self->on_written() : self->write_some();
                         });
}

// The operation under way keeps the answer's bytes as long as it needs them.
void Session::end_writing() {
    if (writing_) {
        loop_->writing.erase(*writing_);
        loop_->answers_bytes -= answer_->bytes;
    }
    writing_.reset();
    answer_.reset();
}

void Session::on_written() {
    end_writing();
    if (keep_alive_) return read();
    error_code ignored;
    stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
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
    send(status, text_of_json(body));
}

void Responder::fail(const Status& status) const {
    send(http_status(status.code),
         text_of_json(error_json(status.message, std::string(code_name(status.code)))));
}

bool Responder::client_gone() const {
    return state_->gone;
}

nlohmann::json error_json(const std::string& message, const std::string& code) {
    return {{"error", {{"message", message}, {"code", code}}}};
}

}  // namespace tandem::http
