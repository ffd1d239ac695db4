// How a receiver of ours is reached, from what the server in front of it says: on one host by its channel, its buckets in
// shared memory; from another host, or where the engine's URL asks for it, over TCP.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/deadline.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/tandem/engine.h"
#include "engine_adapter/tandem/url.h"

namespace tandem::engine {

struct Whereabouts {
    std::string receiver = {};   // "unix-abstract:NAME", on its own host
    bool here = true;            // that is this one
    std::string data_port = {};  // of its data plane over TCP; empty: none
};

class ReceiverRoute {
  public:
    // name: of the engine, in errors. host: at which its server is reached. how_to_listen: what its user does for a data
    // plane over TCP. key: of that; empty for none. Throws TransportError: it would be TCP, and there is none.
    ReceiverRoute(const std::string& name, const Whereabouts& to, const std::string& host,
                  const EngineUrl& url, const std::string& how_to_listen, std::string key);
    // Straight to a data plane, without a server in front of it.
    ReceiverRoute(TcpAddress to, const TcpOptions& options, std::string key);

    // Blocking. Throws TransportError: nothing listens there.
    Channel open(Deadline deadline) const;
    // An engine over that channel, its transport chosen. Throws TransportError, retryable where another trainer has it.
    std::unique_ptr<TandemEngine> engine(Channel channel, const ConnectOptions& options,
                                         Deadline deadline) const;

  private:
    std::string receiver_;  // empty: its channel goes over TCP, too
    std::optional<TcpAddress> tcp_;
    TcpOptions options_;
    std::string key_;
};

}  // namespace tandem::engine
