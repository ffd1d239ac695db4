// Rank 0 of an NCCL group with all workers of a third-party server, each on a GPU of its own: for servers that are broadcast
// their weights. How the workers come to the group's id, and when they join, is the server's folder's.
//
// NCCL tells nobody that a peer is gone: after a failure this end leaves the group, and a worker may wait in it until the
// server is restarted. Every wait looks at the call that the workers answer meanwhile, whose failure ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/comm/nccl/handle.h"
#include "common/device/stream.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/http_api/pending_call.h"

namespace tandem::engine {

class BroadcastRoot {
  public:
    // server: its name, in errors. instead: what its user does where NCCL does not join the GPUs, for a message.
    BroadcastRoot(std::string server, std::string instead, const ConnectOptions& options);
    ~BroadcastRoot() { leave(); }
    BroadcastRoot(const BroadcastRoot&) = delete;
    BroadcastRoot& operator=(const BroadcastRoot&) = delete;

    // A group anew, on `device`: what its workers must be given to join.
    comm::nccl::UniqueId start(Device device);
    // Blocking, collective with `workers` of them. Throws TransportError, DeadlineExceeded.
    void join(const comm::nccl::UniqueId& id, std::int64_t workers, PendingCall& call, Deadline deadline);
    bool joined() const { return group_.has_value(); }
    // Takes part in a sum of one float over all ranks.
    void sum(PendingCall& call, Deadline deadline);
    // One after the other, a launch each, behind the work of stream() so far. Returns when they are sent.
    void broadcast(std::span<const Span> pieces, PendingCall& call, Deadline deadline);

    Stream& stream() { return *stream_; }  // from start() to leave()
    void leave() noexcept;                 // nothing reads the pieces any more

  private:
    const comm::nccl::Api& api() const;
    void wait_sent(const std::string& phase, PendingCall& call, Deadline deadline);

    const std::string server_;
    const std::string instead_;
    const comm::nccl::Api* api_;
    Device device_;
    std::optional<Stream> stream_;
    std::optional<comm::nccl::Handle> group_;
};

}  // namespace tandem::engine
