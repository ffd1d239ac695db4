// The server of the TCP store: one thread, one map, any number of connections.
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <map>
#include <thread>

#include "common/comm/store.h"
#include "common/comm/tcp_protocol.h"
#include "common/error.h"
#include "common/log.h"

namespace tandem::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Values = std::map<std::string, std::string>;

std::pair<wire::Status, std::string> answer_to(Values& values, wire::Operation operation,
                                               const std::string& key, std::string value) {
    switch (operation) {
        case wire::Operation::set:
            values[key] = std::move(value);
            return {wire::Status::ok, ""};
        case wire::Operation::get: {
            const auto found = values.find(key);
            if (found == values.end()) return {wire::Status::absent, ""};
            return {wire::Status::ok, found->second};
        }
        case wire::Operation::add: {
            try {
                const std::int64_t amount = parse_store_integer(key, value);
                std::string& sum = values[key];
                sum = std::to_string(parse_store_integer(key, sum) + amount);
                return {wire::Status::ok, sum};
            } catch (const InvalidArgument& error) {
                return {wire::Status::refused, error.what()};
            }
        }
    }
    return {wire::Status::refused, "store: unknown operation"};
}

// One connection. A failing read or write, or a request that is too long, ends it.
class Session : public std::enable_shared_from_this<Session> {
  public:
    Session(tcp::socket socket, Values& values) : socket_(std::move(socket)), values_(values) {}

    void read_request() {
        asio::async_read(socket_, asio::buffer(header_),
                         [self = shared_from_this()](error_code error, std::size_t) {
                             if (!error) self->read_body();
                         });
    }

  private:
    void read_body() {
        const std::uint32_t key_bytes = wire::get_u32(&header_[1]);
        const std::uint32_t value_bytes = wire::get_u32(&header_[5]);
        if (key_bytes > wire::kMaxKey || value_bytes > wire::kMaxValue) return;
        key_.resize(key_bytes);
        value_.resize(value_bytes);
        const std::array<asio::mutable_buffer, 2> body = {asio::buffer(key_), asio::buffer(value_)};
        asio::async_read(socket_, body, [self = shared_from_this()](error_code error, std::size_t) {
            if (!error) self->answer();
        });
    }

    void answer() {
        const auto operation = static_cast<wire::Operation>(header_[0]);
        auto [status, value] = answer_to(values_, operation, key_, std::move(value_));
        value_ = std::move(value);
        header_[0] = static_cast<unsigned char>(status);
        wire::put_u32(&header_[1], static_cast<std::uint32_t>(value_.size()));
        const std::array<asio::const_buffer, 2> reply = {asio::buffer(header_.data(), wire::kAnswerHeader),
                                                         asio::buffer(value_)};
        asio::async_write(socket_, reply, [self = shared_from_this()](error_code error, std::size_t) {
            if (!error) self->read_request();
        });
    }

    tcp::socket socket_;
    Values& values_;
    std::array<unsigned char, wire::kRequestHeader> header_{};
    std::string key_;
    std::string value_;
};

}  // namespace

struct TcpStoreServer::Impl {
    Values values;  // outlives the sessions, which the context holds
    asio::io_context context{1};
    tcp::acceptor acceptor{context};
    std::thread thread;

    void listen(const std::string& host, int port) {
        error_code error;
        const auto found = tcp::resolver(context).resolve(host, std::to_string(port), error);
        if (error || found.empty()) {
            throw BadInput(fmt::format("store: cannot resolve host '{}': {}", host, error.message()));
        }
        const tcp::endpoint endpoint = found.begin()->endpoint();
        acceptor.open(endpoint.protocol());
        acceptor.set_option(tcp::acceptor::reuse_address(true));
        acceptor.bind(endpoint, error);
        if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
        if (error) throw SystemError(fmt::format("store: listening on {}:{}", host, port), error.value());
    }

    void accept() {
        acceptor.async_accept([this](error_code error, tcp::socket socket) {
            if (error == asio::error::operation_aborted) return;
            if (error) {
                log_warn("store: accept: {}", error.message());
            } else {
                socket.set_option(tcp::no_delay(true), error);
                std::make_shared<Session>(std::move(socket), values)->read_request();
            }
            accept();
        });
    }
};

TcpStoreServer::TcpStoreServer(const std::string& host, int port) : impl_(std::make_unique<Impl>()) {
    impl_->listen(host, port);
    impl_->accept();
    impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}

TcpStoreServer::~TcpStoreServer() {
    impl_->context.stop();
    impl_->thread.join();
}

int TcpStoreServer::port() const {
    return impl_->acceptor.local_endpoint().port();
}

}  // namespace tandem::comm
