// A trainer's message (channel/messages.h) turned into a call of VersionUpdate, and its result into a reply.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine_adapter/channel/channel.h"
#include "engine_adapter/receiver/offered_regions.h"
#include "engine_adapter/receiver/tcp_bucket.h"
#include "engine_adapter/receiver/version_update.h"
#include "engine_adapter/transport/nccl/member.h"
#include "engine_adapter/transport/tcp/listener.h"
#include "engine_adapter/transport/tcp/member.h"

namespace tandem::engine {

struct Reply {
    nlohmann::json header = nlohmann::json::object();  // beyond id and ok
    std::vector<std::byte> payload = {};
};

class Requests {
  public:
    // `update` is borrowed. engine, depth: the answer to hello. nccl: its functions; null: found at run time.
    // check: called while a request waits for bytes over NCCL or TCP; throws to end the wait. data_plane: borrowed; null:
    // none.
    Requests(VersionUpdate& update, std::string engine, int depth, const comm::nccl::Api* nccl,
             std::function<void()> check, TcpListener* data_plane)
        : update_(update),
          engine_(std::move(engine)),
          depth_(depth),
          check_(std::move(check)),
          member_(update.device(), nccl),
          data_plane_(data_plane) {}
    ~Requests() { end_data(); }
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;

    // Throws MalformedMessage when the message makes no sense, and whatever VersionUpdate throws.
    Reply answer(Message& message);
    // While answer() waits: starts to receive the buckets at the head of `queued` (what the trainer has said
    // since, in order) into the slots that are free. Throws when that fails.
    void start_receives_ahead(const std::deque<Message>& queued);
    bool waits_for_bytes() const { return waits_for_bytes_; }
    bool greeted() const { return lease_.count() > 0; }            // the trainer has said hello
    bool under_way() const { return update_.push().under_way(); }  // a push
    // For how long the trainer may say nothing: in a push, and between pushes where another one wants its seat.
    std::chrono::milliseconds lease() const { return lease_; }
    void lose_trainer(const std::string& reason);  // what belongs to it ends

  private:
    // One a request (channel/messages.h).
    Reply hello(Message& message);
    Reply attach(Message& message);
    Reply gpu_id(Message& message);
    Reply join(Message& message);
    Reply leave(Message& message);
    Reply open_data(Message& message);
    Reply ping(Message& message);
    Reply release(Message& message);
    Reply probe(Message& message);
    Reply held(Message& message);
    Reply pause(Message& message);
    Reply resume(Message& message);
    Reply begin(Message& message);
    Reply load(Message& message);
    Reply relay(Message& message);
    Reply load_delta(Message& message);
    Reply verify(Message& message);
    Reply adopt(Message& message);
    Reply commit(Message& message);
    Reply abort(Message& message);
    Reply checksums(Message& message);

    void end_data();
    void require_data_plane() const;  // throws ProtocolError
    TcpAnnounced tcp_announced(const nlohmann::json& header) const;

    VersionUpdate& update_;
    const std::string engine_;
    const int depth_;
    const std::function<void()> check_;
    NcclMember member_;
    TcpListener* const data_plane_;
    TcpMember tcp_member_;
    std::uint64_t largest_ = 0;  // bytes of a load over TCP
    Way way_ = Way::mapped;      // how the bytes of what is attached come
    bool waits_for_bytes_ = false;
    std::chrono::milliseconds lease_{};  // of the trainer that is connected
};

}  // namespace tandem::engine
