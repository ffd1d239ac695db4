#include "common/http/server.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>

#include "common/http/session.h"
#include "common/http/unix_socket.h"
#include "common/thread.h"

namespace tandem::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct Server::Impl {
    explicit Impl(const ServerOptions& options)
        : loop(std::make_shared<Loop>()),
          guard(asio::make_work_guard(loop->context)),
          acceptor(loop->context),
          retry(loop->context) {
        loop->options = options;
        loop->rules = {options.api_key, options.admin_api_key, false};
        rlimit descriptors{};
        if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY)
            loop->options.max_connections = std::min<std::size_t>(
                options.max_connections, std::max<std::size_t>(descriptors.rlim_cur / 2, 8));
        const ListenAddress address = parse_listen_address(options.listen);
        address.socket.empty() ? listen(address) : listen_at_file(address.socket);
    }

    // Its file says who may connect, and no browser can: hosts and origins need no look.
    void listen_at_file(const std::string& path) {
        file.emplace(path);
        acceptor.assign({AF_UNIX, 0}, file->take_descriptor());
        url = "unix://" + path;
    }

    void listen(const ListenAddress& address) {
        const std::string name = address.host + ":" + std::to_string(address.port);
        const auto fail = [&](const std::string& message) {
            throw ConfigError("command line", "--listen", "address " + name + message);
        };
        error_code error;
        tcp::resolver resolver(loop->context);
        const auto found =
            resolver.resolve(address.host, std::to_string(address.port), tcp::resolver::passive, error);
        if (error || found.empty()) fail(" cannot be resolved: " + error.message());
        const tcp::endpoint endpoint = *found.begin();
        tcp::acceptor bound(loop->context);
        bound.open(endpoint.protocol(), error);
        if (!error) ::fcntl(bound.native_handle(), F_SETFD, FD_CLOEXEC);  // no child inherits it
        if (!error) bound.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error) bound.bind(endpoint, error);
        if (!error) bound.listen(tcp::socket::max_listen_connections, error);
        if (error == asio::error::address_in_use) {
            fail(" is in use; stop the program that holds it, or choose another port (0 takes a free one)");
        }
        if (error) fail(" cannot be used: " + error.message());
        loop->rules.loopback = endpoint.address().is_loopback();
        port = bound.local_endpoint().port();
        url = "http://" + address.host + ":" + std::to_string(port);
        acceptor = std::move(bound);
    }

    void accept() {
        acceptor.async_accept([this](error_code error, Session::Protocol::socket socket) {
            if (!acceptor.is_open()) return;
            if (!error) {
                ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
                const bool room = loop->make_room();
                const auto session = std::make_shared<Session>(std::move(socket), loop);
                room ? session->read() : session->turn_away();
                return accept();
            }
            retry.expires_after(
                std::chrono::milliseconds(50));  // out of descriptors: let some be closed first
            retry.async_wait([this](error_code cancelled) {
                if (!cancelled) accept();
            });
        });
    }

    void stop() {
        if (stopped) return;
        stopped = true;
        asio::post(loop->context, [this] {
            error_code ignored;
            acceptor.close(ignored);
            retry.cancel();
            for (Session* session : loop->sessions) session->close();
            guard.reset();
        });
        if (thread.joinable()) {
            thread.join();
        } else {
            loop->run();
        }
        file.reset();
    }

    std::shared_ptr<Loop> loop;
    asio::executor_work_guard<asio::io_context::executor_type> guard;
    std::optional<ListeningFile> file;
    asio::basic_socket_acceptor<Session::Protocol> acceptor;
    asio::steady_timer retry;
    std::string url;
    int port = 0;
    Thread thread;
    bool stopped = false;
};

Server::Server(const ServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Server::~Server() {
    stop();
}

void Server::route(const std::string& method, const std::string& path, Handler handler, Access access) {
    impl_->loop->routes[path][method] = {std::move(handler), access};
}

void Server::start() {
    asio::post(impl_->loop->context, [this] { impl_->accept(); });
    impl_->thread = Thread("of the HTTP server", [loop = impl_->loop] { loop->run(); });
}

void Server::stop() {
    impl_->stop();
}

int Server::port() const {
    return impl_->port;
}

bool Server::loopback() const {
    return impl_->loop->rules.loopback || impl_->file;
}

std::string Server::url() const {
    return impl_->url;
}

}  // namespace tandem::http
