#include "common/store/served_connection.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr double kDescriptorsShare = .75;  // the rest of the process needs some

}  // namespace

ServedConnections::ServedConnections(const std::string& who, std::size_t max_connections)
    : admission(within_descriptors(max_connections, kDescriptorsShare)), warnings(who) {}

ServedConnection::ServedConnection(tcp::socket socket, ServedConnections& others)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      others_(others),
      place_(others.admission, peer_group(socket_.native_handle()), [this] { make_room(); }) {}

ServedConnection::~ServedConnection() = default;

void ServedConnection::make_room() {
    others_.warnings.say(fmt::format("more than {} connections; one that has not said who it is ends",
                                     others_.admission.places()));
    close();
}

void ServedConnection::prove() {
    if (is_open() && !place_.prove())
        throw ProtocolError(fmt::format("more than {} connections", others_.admission.places()));
}

void ServedConnection::start() {
    guarded([this] {
        socket_.set_option(tcp::no_delay(true));
        socket_.non_blocking(true);
        started();
    });
}

void ServedConnection::close() {
    place_.give_up();
    error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
}

template <typename Body>
void ServedConnection::guarded(const Body& body) {
    try {
        body();
    } catch (const ProtocolError& error) {
        others_.warnings.say(fmt::format("{}; its connection ends", error.what()));
        close();
    } catch (const std::exception& error) {  // memory, or the socket
        others_.warnings.say(fmt::format("a connection ends: {}", error.what()));
        close();
    }
}

void ServedConnection::watch(std::chrono::milliseconds time) {
    timer_.expires_after(time);
    timer_.async_wait([weak = weak_from_this()](error_code) {
        const auto self = weak.lock();
        if (!self || self->timer_.expiry() > asio::steady_timer::clock_type::now()) return;  // set again
        self->close();
    });
}

void ServedConnection::watch_not() {
    timer_.expires_at(asio::steady_timer::time_point::max());
}

void ServedConnection::later() {
    asio::post(socket_.get_executor(), [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->guarded([&] { self->started(); });
    });
}

void ServedConnection::read() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
        if (error) return self->close();
        self->guarded([&] { self->take_what_is_there(); });
    });
}

void ServedConnection::take_what_is_there() {
    error_code error;
    const std::size_t bytes = socket_.read_some(asio::buffer(others_.incoming), error);
    if (error == asio::error::would_block || error == asio::error::try_again) return received({});
    if (error) return close();
    received({others_.incoming.data(), bytes});
}

void ServedConnection::send(std::string_view text) {
    asio::async_write(socket_, asio::buffer(text.data(), text.size()),
                      [self = shared_from_this()](error_code error, std::size_t) {
                          if (error) return self->close();
                          self->guarded([&] { self->sent(); });
                      });
}

}  // namespace tandem
