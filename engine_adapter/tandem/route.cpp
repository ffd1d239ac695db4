#include "engine_adapter/tandem/route.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/host_port.h"

namespace tandem::engine {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(20);

}  // namespace

ReceiverRoute::ReceiverRoute(const std::string& name, const Whereabouts& to, const std::string& host,
                             const EngineUrl& url, const std::string& how_to_listen, std::string key)
    : options_(url.tcp_options), key_(std::move(key)) {
    if (to.here) receiver_ = to.receiver;
    if (to.here && !url.tcp) return;
    if (to.data_port.empty()) {
        throw TransportError("engine " + name, "connect",
                             fmt::format("{}: {}",
                                         to.here ? "it has no data plane over TCP"
                                                 : "it runs on another host, without a data plane over TCP",
                                         how_to_listen));
    }
    tcp_ = TcpAddress{host, to.data_port};
}

ReceiverRoute::ReceiverRoute(TcpAddress to, const TcpOptions& options, std::string key)
    : tcp_(std::move(to)), options_(options), key_(std::move(key)) {}

Channel ReceiverRoute::open(Deadline deadline) const {
    if (!receiver_.empty()) return Channel::connect(receiver_, deadline);
    const std::string peer = "engine tcp://" + to_host_port(tcp_->host, tcp_->port);
    auto sockets = tcp::dial(*tcp_, tcp::Kind::control, key_, 1, options_, peer, "connect", deadline);
    return {std::move(sockets.front()), peer};
}

std::unique_ptr<TandemEngine> ReceiverRoute::connect(const ConnectOptions& options, Deadline deadline,
                                                     Deadline patience) const {
    std::optional<TransportError> busy;
    for (;;) {
        bool listens = false;
        try {
            Channel channel = open(deadline);
            listens = true;
            auto engine = std::make_unique<TandemEngine>(std::move(channel), options, deadline);
            if (tcp_) engine->go_over_tcp(*tcp_, options_);
            return engine;
        } catch (const DeadlineExceeded&) {
            if (busy) throw *busy;
            throw;
        } catch (const TransportError& error) {
            if (!listens || !error.retryable() || patience.passed()) throw;
            busy = error;
        }
        std::this_thread::sleep_for(kRetry);
    }
}

}  // namespace tandem::engine
