#include "common/http/server.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>

#include "common/host_port.h"
#include "common/http/session.h"
#include "common/http/unix_socket.h"
#include "common/listening_sockets.h"
#include "common/thread.h"

namespace tandem::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

ListeningSockets sockets_at(const ListenAddress& address) {
    const auto fail = [&](const std::string& message) {
        throw ConfigError("command line", "--listen",
                          "address " + to_host_port(address.host, address.port) + message);
    };
    try {
        return listen_at(address.host, address.port);
    } catch (const BadInput& error) {
        fail(std::string(" cannot be resolved: ") + error.what());
    } catch (const SystemError& error) {
        if (error.error_number() == EADDRINUSE) {
            fail(" is in use; stop the program that holds it, or choose another port (0 takes a free one)");
        }
        fail(std::string(" cannot be used: ") + std::strerror(error.error_number()));
    }
    return {};
}

}  // namespace

struct Server::Impl {
    // One address that the server listens at.
    struct Listener {
        Listener(asio::io_context& context, const Session::Protocol& protocol, int descriptor)
            : acceptor(context, protocol, descriptor), retry(context) {}

        asio::basic_socket_acceptor<Session::Protocol> acceptor;
        asio::steady_timer retry;
    };

    explicit Impl(const ServerOptions& options)
        : loop(std::make_shared<Loop>(options, AccessRules{options.api_key, options.admin_api_key, false},
                                      within_descriptors(options.max_connections, .5))),
          guard(asio::make_work_guard(loop->context)) {
        const ListenAddress address = parse_listen_address(options.listen);
        address.socket.empty() ? listen(address) : listen_at_file(address.socket);
    }

    // Its file says who may connect, and no browser can: hosts and origins need no look.
    void listen_at_file(const std::string& path) {
        file.emplace(path);
        listeners.emplace_back(loop->context, Session::Protocol(AF_UNIX, 0), file->take_descriptor());
        url = "unix://" + path;
    }

    void listen(const ListenAddress& address) {
        ListeningSockets listening = sockets_at(address);
        for (auto& [family, socket] : listening.sockets)
            listeners.emplace_back(loop->context, Session::Protocol(family, IPPROTO_TCP), socket.release());
        loop->rules.loopback = listening.loopback;
        port = listening.port;
        url = "http://" + to_host_port(address.host, port);
    }

    void accept(Listener& listener) {
        listener.acceptor.async_accept([this, &listener](error_code error, Session::Protocol::socket socket) {
            if (!listener.acceptor.is_open()) return;
            if (!error) {
                ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
                std::make_shared<Session>(std::move(socket), loop)->read();
                return accept(listener);
            }
            // Out of descriptors: let some be closed first.
            listener.retry.expires_after(std::chrono::milliseconds(50));
            listener.retry.async_wait([this, &listener](error_code cancelled) {
                if (!cancelled) accept(listener);
            });
        });
    }

    void stop() {
        if (stopped) return;
        stopped = true;
        asio::post(loop->context, [this] {
            error_code ignored;
            for (Listener& listener : listeners) {
                listener.acceptor.close(ignored);
                listener.retry.cancel();
            }
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
    std::list<Listener> listeners;
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
    asio::post(impl_->loop->context, [this] {
        for (Impl::Listener& listener : impl_->listeners) impl_->accept(listener);
    });
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
