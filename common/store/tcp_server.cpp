// The sockets of the TCP store's server: one thread, any number of connections, each of which a StoreSession answers.
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "common/store/accepting_thread.h"
#include "common/store/served_connection.h"
#include "common/store/store.h"
#include "common/store/store_session.h"

namespace tandem {
namespace {

using boost::asio::ip::tcp;

// What the connections of a server share. One thread.
struct Shared {
    explicit Shared(const StoreServerOptions& given)
        : options(given), values(given.max_bytes), connections("store", given.max_connections) {}

    const StoreServerOptions options;
    StoreValues values;
    ServedConnections connections;
};

class Connection final : public ServedConnection {
  public:
    Connection(tcp::socket socket, Shared& shared)
        : ServedConnection(std::move(socket), shared.connections),
          options_(shared.options),
          session_(shared.values, options_.secret ? &*options_.secret : nullptr) {}

  private:
    void started() override {
        greeting_ = session_.greeting();
        say(greeting_);
    }

    void received(std::string_view bytes) override {
        if (bytes.empty()) return read();
        const bool begins = !session_.mid_request();
        session_.feed(bytes);
        if (begins) watch_reading();
        answer();
    }

    void sent() override {
        if (session_.ending()) return close();
        watch_reading();
        answer();
    }

    // Until its next bytes: a request or a proof that has begun, or is owed, may not take for ever, however its bytes
    // trickle.
    void watch_reading() {
        const bool idle = session_.accepted() && !session_.mid_request();
        watch(idle ? options_.idle_timeout : options_.patience);
    }

    void answer() {
        const auto text = session_.next();
        if (!text) return read();
        if (session_.accepted()) prove();
        if (session_.ending())
            others().warnings.say("a client does not know TANDEM_JOB_SECRET; its connection ends");
        say(*text);
    }

    void say(std::string_view text) {
        watch(options_.patience);
        send(text);
    }

    const StoreServerOptions& options_;
    StoreSession session_;
    std::string greeting_;
};

}  // namespace

struct TcpStoreServer::Impl {
    Impl(const std::string& host, int port, const StoreServerOptions& options)
        : shared(options),
          thread("store", host, port, shared.connections.warnings, [this](tcp::socket socket) {
              std::make_shared<Connection>(std::move(socket), shared)->start();
          }) {}

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

}  // namespace tandem
