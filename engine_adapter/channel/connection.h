// The trainer's end of a receiver's channel: requests with ids, replies matched to them. Several requests may
// be open; the engine answers in order. A reply to no open request is malformed, and ends the connection's use.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "engine_adapter/channel/channel.h"

namespace tandem::engine {

// Used by one thread at a time.
class Connection {
  public:
    explicit Connection(Channel channel) : channel_(std::move(channel)) {}

    const std::string& peer() const { return channel_.peer(); }
    // Sends header + {"id"}; returns the id.
    std::int64_t post(nlohmann::json header, const std::string& phase, Deadline deadline,
                      ConstSpan payload = {}, std::span<const int> fds = {});
    // The reply to `id`. Throws the error that it tells of (messages::throw_if_failed).
    Message wait(std::int64_t id, const std::string& phase, Deadline deadline);
    // Reads what is there without blocking for more; true when the reply to `id` is among it (or an error is
    // certain).
    bool answered(std::int64_t id, const std::string& phase);
    bool refused(std::int64_t id, const std::string& phase);  // the same, and the reply tells of an error
    bool hung_up() const { return channel_.hung_up(); }
    // Returns when there is something to read, or the time has passed.
    void wait_readable(std::chrono::nanoseconds time) const { channel_.wait_readable(time); }
    void forget(std::int64_t id);  // nobody will ask for the reply to `id`
    Message request(nlohmann::json header, const std::string& phase, Deadline deadline,
                    ConstSpan payload = {}, std::span<const int> fds = {}) {
        return wait(post(std::move(header), phase, deadline, payload, fds), phase, deadline);
    }

  private:
    void read_one(const std::string& phase, Deadline deadline);

    Channel channel_;
    std::int64_t last_id_ = 0;
    std::set<std::int64_t> open_;              // requests that have no reply yet
    std::set<std::int64_t> dropped_;           // of those, what nobody will ask for
    std::map<std::int64_t, Message> replies_;  // received, not yet asked for
};

}  // namespace tandem::engine
