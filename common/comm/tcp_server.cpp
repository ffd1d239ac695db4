// The sockets of the TCP store's server: one thread, any number of connections, each of which a StoreSession answers.
#include <sys/resource.h>

#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <list>
#include <optional>

#include "common/comm/accepting_thread.h"
#include "common/comm/store.h"
#include "common/comm/store_session.h"
#include "common/error.h"
#include "common/rare_warnings.h"

namespace tandem::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kDescriptorsLeft = 64;  // for the rest of the process

class Connection;

// What the connections of a server share. One thread.
struct Shared {
    explicit Shared(const StoreServerOptions& given) : options(given), values(given.max_bytes) {
        rlimit descriptors{};
        if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY) return;
        const std::size_t all = descriptors.rlim_cur;
        options.max_connections =
            std::min(options.max_connections, std::max(all / 4, all - std::min(all, kDescriptorsLeft)));
    }

    StoreServerOptions options;
    StoreValues values;
    std::size_t connections = 0;
    std::list<Connection*> silent;  // no request yet; the longest there first
    std::array<char, std::size_t{64} << 10> incoming;
    RareWarnings warnings{"store"};  // anybody may connect
};

// One client. Whatever goes wrong ends it.
class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(tcp::socket socket, Shared& shared)
        : socket_(std::move(socket)),
          timer_(socket_.get_executor()),
          shared_(shared),
          session_(shared.values, shared.options.secret ? &*shared.options.secret : nullptr) {
        ++shared_.connections;
        silent_ = shared_.silent.insert(shared_.silent.end(), this);
    }
    ~Connection() {
        end_silence();
        --shared_.connections;
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start() {
        guarded([this] {
            socket_.set_option(tcp::no_delay(true));
            socket_.non_blocking(true);
            greeting_ = session_.greeting();
            send(greeting_);
        });
    }

    void close() {
        end_silence();
        error_code ignored;
        socket_.close(ignored);
        timer_.cancel();
    }

  private:
    template <typename Body>
    void guarded(const Body& body) {
        try {
            body();
        } catch (const ProtocolError& error) {
            shared_.warnings.say(fmt::format("{}; its connection ends", error.what()));
            close();
        } catch (const std::exception& error) {  // memory, or the socket
            shared_.warnings.say(fmt::format("a connection ends: {}", error.what()));
            close();
        }
    }

    // Until its next bytes: a request or a proof that has begun, or is owed, may not take for ever, however its bytes
    // trickle.
    void watch_reading() {
        const bool idle = session_.accepted() && !session_.mid_request();
        watch(idle ? shared_.options.idle_timeout : shared_.options.patience);
    }
    void watch(std::chrono::milliseconds time) {
        timer_.expires_after(time);
        timer_.async_wait([weak = weak_from_this()](error_code) {
            const auto self = weak.lock();
            if (!self || self->timer_.expiry() > asio::steady_timer::clock_type::now()) return;  // set again
            self->close();
        });
    }

    void read() {
        socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
            if (error) return self->close();
            self->guarded([&] { self->take_what_is_there(); });
        });
    }

    void take_what_is_there() {
        error_code error;
        const std::size_t bytes = socket_.read_some(asio::buffer(shared_.incoming), error);
        if (error == asio::error::would_block || error == asio::error::try_again) return read();
        if (error) return close();
        const bool begins = !session_.mid_request();
        session_.feed({shared_.incoming.data(), bytes});
        if (begins) watch_reading();
        answer();
    }

    void answer() {
        const auto text = session_.next();
        if (!text) return read();
        if (session_.accepted()) end_silence();
        if (session_.ending())
            shared_.warnings.say("a client does not know TANDEM_JOB_SECRET; its connection ends");
        send(*text);
    }

    void send(std::string_view text) {
        watch(shared_.options.patience);
        asio::async_write(socket_, asio::buffer(text.data(), text.size()),
                          [self = shared_from_this()](error_code error, std::size_t) {
                              if (error || self->session_.ending()) return self->close();
                              self->guarded([&] {
                                  self->watch_reading();
                                  self->answer();
                              });
                          });
    }

    void end_silence() {
        if (silent_) shared_.silent.erase(*silent_);
        silent_.reset();
    }

    tcp::socket socket_;
    asio::steady_timer timer_;
    Shared& shared_;
    StoreSession session_;
    std::string greeting_;
    std::optional<std::list<Connection*>::iterator> silent_;
};

}  // namespace

struct TcpStoreServer::Impl {
    Impl(const std::string& host, int port, const StoreServerOptions& options)
        : shared(options), thread("store", host, port, shared.warnings, [this](tcp::socket socket) {
              admit(std::move(socket));
          }) {}

    void admit(tcp::socket socket) {
        if (shared.connections >= shared.options.max_connections) {
            if (shared.silent.empty())
                return shared.warnings.say(
                    fmt::format("more than {} connections; one is refused", shared.connections));
            shared.warnings.say(fmt::format("more than {} connections; the one that was silent longest ends",
                                            shared.connections));
            shared.silent.front()->close();
        }
        std::make_shared<Connection>(std::move(socket), shared)->start();
    }

    Shared shared;  // outlives the connections, which the thread holds
    AcceptingThread thread;
};

TcpStoreServer::TcpStoreServer(const std::string& host, int port, const StoreServerOptions& options)
    : impl_(std::make_unique<Impl>(host, port, options)) {}

TcpStoreServer::~TcpStoreServer() = default;

int TcpStoreServer::port() const {
    return impl_->thread.port();
}

bool TcpStoreServer::loopback() const {
    return impl_->thread.loopback();
}

}  // namespace tandem::comm
