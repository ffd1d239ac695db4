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

    // An engine over its channel, its transport chosen. Waits until `patience` has passed for a trainer that is
    // connected: one that has just gone may not be gone there yet. Throws TransportError: nothing listens there, or
    // (retryable) another trainer has it.
    std::unique_ptr<TandemEngine> connect(const ConnectOptions& options, Deadline deadline,
                                          Deadline patience) const;

  private:
    Channel open(Deadline deadline) const;

    std::string receiver_;  // empty: its channel goes over TCP, too
    std::optional<TcpAddress> tcp_;
    TcpOptions options_;
    std::string key_;
};

}  // namespace tandem::engine
