#include "common/comm/accepting_thread.h"

#include <utility>

#include "common/error.h"
#include "common/host_port.h"

namespace tandem::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kRetryAccept{50};

}  // namespace

AcceptingThread::AcceptingThread(const std::string& who, const std::string& host, int port,
                                 RareWarnings& warnings, Admit admit)
    : warnings_(warnings), admit_(std::move(admit)) {
    listen(who, host, port);
    accept();
    thread_ = Thread("that accepts connections", [this] { run(); });
}

AcceptingThread::~AcceptingThread() {
    context_.stop();
    thread_.join();
}

int AcceptingThread::port() const {
    return acceptor_.local_endpoint().port();
}

bool AcceptingThread::loopback() const {
    return acceptor_.local_endpoint().address().is_loopback();
}

void AcceptingThread::listen(const std::string& who, const std::string& host, int port) {
    error_code error;
    const auto found = tcp::resolver(context_).resolve(host, std::to_string(port), error);
    if (error || found.empty())
        throw BadInput(fmt::format("{}: cannot resolve host '{}': {}", who, host, error.message()));
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error)
        throw SystemError(fmt::format("{}: listening on {}", who, to_host_port(host, port)), error.value());
}

void AcceptingThread::accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
        if (error == asio::error::operation_aborted) return;
        if (error) return accept_later(error.message());
        try {
            admit_(std::move(socket));
        } catch (const std::exception& problem) {
            return accept_later(problem.what());
        }
        accept();
    });
}

// Out of descriptors or memory: others must give some back first.
void AcceptingThread::accept_later(const std::string& why) {
    warnings_.say("cannot accept: " + why);
    retry_.expires_after(kRetryAccept);
    retry_.async_wait([this](error_code cancelled) {
        if (!cancelled) accept();
    });
}

void AcceptingThread::run() {
    while (!context_.stopped()) {
        try {
            context_.run();
        } catch (const std::exception& error) {  // from accept(): connections keep theirs
            accept_later(error.what());
        }
    }
}

}  // namespace tandem::comm
