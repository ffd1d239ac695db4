#include "common/store/accepting_thread.h"

#include <utility>

#include "common/error.h"
#include "common/host_port.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kRetryAccept{50};

ListeningSockets sockets_of(const std::string& who, const std::string& host, int port) {
    try {
        return listen_at(host, port);
    } catch (const BadInput& error) {
        throw BadInput(fmt::format("{}: {}", who, error.what()));
    } catch (const SystemError& error) {
        throw SystemError(fmt::format("{}: listening on {}", who, to_host_port(host, port)),
                          error.error_number());
    }
}

}  // namespace

AcceptingThread::Listener::Listener(asio::io_context& context, ListeningSockets::One& at)
    : acceptor(context, at.family == AF_INET6 ? tcp::v6() : tcp::v4(), at.socket.release()), retry(context) {}

AcceptingThread::AcceptingThread(const std::string& who, const std::string& host, int port,
                                 RareWarnings& warnings, Admit admit)
    : warnings_(warnings), admit_(std::move(admit)), listening_(sockets_of(who, host, port)) {
    for (ListeningSockets::One& one : listening_.sockets) accept(listeners_.emplace_back(context_, one));
    thread_ = Thread("that accepts connections", [this] { run(); });
}

AcceptingThread::~AcceptingThread() {
    context_.stop();
    thread_.join();
}

void AcceptingThread::accept(Listener& listener) {
    listener.acceptor.async_accept([this, &listener](error_code error, tcp::socket socket) {
        if (error == asio::error::operation_aborted) return;
        if (error) return accept_later(listener, error.message());
        try {
            admit_(std::move(socket));
        } catch (const std::exception& problem) {
            return accept_later(listener, problem.what());
        }
        accept(listener);
    });
}

// Out of descriptors or memory: others must give some back first.
void AcceptingThread::accept_later(Listener& listener, const std::string& why) {
    warnings_.say("cannot accept: " + why);
    listener.retry.expires_after(kRetryAccept);
    listener.retry.async_wait([this, &listener](error_code cancelled) {
        if (!cancelled) accept(listener);
    });
}

void AcceptingThread::run() {
    while (!context_.stopped()) {
        try {
            context_.run();
        } catch (const std::exception& error) {  // from an accept(): connections keep theirs
            for (Listener& listener : listeners_) {
                error_code ignored;
                listener.acceptor.cancel(ignored);
                accept_later(listener, error.what());
            }
        }
    }
}

}  // namespace tandem
