// The sockets of the TCP store's server: one thread, any number of connections, each of which a StoreSession answers.
#include <sys/resource.h>

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <thread>

#include "common/comm/store.h"
#include "common/comm/store_session.h"
#include "common/error.h"
#include "common/rare_warnings.h"

namespace tandem::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kRetryAccept{50};
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
    explicit Impl(const StoreServerOptions& options) : shared(options) {}

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
            if (error) return accept_later(error.message());
            try {
                admit(std::move(socket));
            } catch (const std::exception& problem) {
                return accept_later(problem.what());
            }
            accept();
        });
    }

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

    // Out of descriptors or memory: others must give some back first.
    void accept_later(const std::string& why) {
        shared.warnings.say("cannot accept: " + why);
        retry.expires_after(kRetryAccept);
        retry.async_wait([this](error_code cancelled) {
            if (!cancelled) accept();
        });
    }

    void run() {
        while (!context.stopped()) {
            try {
                context.run();
            } catch (const std::exception& error) {  // from accept(): connections keep theirs
                accept_later(error.what());
            }
        }
    }

    Shared shared;  // outlives the connections, which the context holds
    asio::io_context context{1};
    tcp::acceptor acceptor{context};
    asio::steady_timer retry{context};
    std::thread thread;
};

TcpStoreServer::TcpStoreServer(const std::string& host, int port, const StoreServerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
    impl_->listen(host, port);
    impl_->accept();
    impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

TcpStoreServer::~TcpStoreServer() {
    impl_->context.stop();
    impl_->thread.join();
}

int TcpStoreServer::port() const {
    return impl_->acceptor.local_endpoint().port();
}

bool TcpStoreServer::loopback() const {
    return impl_->acceptor.local_endpoint().address().is_loopback();
}

}  // namespace tandem::comm
