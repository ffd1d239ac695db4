// A vLLM server that was started with our weight-transfer backend (sync/python/tandem_sync/vllm), as sync sees it. Buckets go
// to the receiver in its first worker, which stages and verifies whole versions while the server generates; commit pauses
// it, has every worker load the staged version, layer by layer, and tells it the version.
//
//   failed                                   serves afterwards
//   before a worker began to load            the version from before: abort resumes it
//   while one loads, or its answer is lost   nothing: it stays paused, with weight version "loading N"; the next push heals it
// What VllmEngine says of pauses of others holds here. One that a killed pusher left is known by that weight version, or
// by the note that it left with the workers before it paused.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine_adapter/connect.h"
#include "engine_adapter/tandem/receiver_engine.h"
#include "engine_adapter/vllm/others_pause.h"
#include "engine_adapter/vllm/probe.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

class VllmPluginEngine final : public ReceiverEngine {
  public:
    // info: as probe_vllm gave it. url: of the server, and how its receiver is reached (tandem/url.h).
    VllmPluginEngine(VllmServer server, VllmInfo info, const EngineUrl& url, const ConnectOptions& options,
                     Deadline deadline);
    ~VllmPluginEngine() override;

    std::string peer() const override { return server_.name(); }
    void pause(Deadline deadline) override;
    void resume(Deadline deadline) override;
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void abort(const std::string& reason, Deadline deadline) override;

  private:
    std::string weight_version(Deadline deadline) override { return server_.weight_version(deadline); }

    enum class Server : std::uint8_t {
        running,  // or paused by somebody else
        paused,   // by this push
        loading   // a worker may have begun to load, and not all have said that they did
    };
    // What the workers say of themselves.
    struct Workers {
        Whereabouts at;            // the first one's receiver
        std::string memory;        // where its staging memory can be opened
        std::string note;          // kept for a successor of this process
        bool whole = true;         // each holds one version, and all the same
        std::int64_t version = 0;  // that they were given last; 0: what they were started with
        double load_ms = 0;        // that the slowest spent in vLLM's reload
        bool open = false;         // an update was started and has not been finished
        std::string failure;       // of the last init or update, by the first worker that has one
    };
    struct Spent {
        double pause_ms = 0;
        double load_ms = 0;
        double finish_ms = 0;
    };
    Workers ask_workers(const nlohmann::json& arguments, Deadline deadline);
    Workers leave_note(const char* note, Deadline deadline);
    void load_staged(std::int64_t version, Deadline deadline);
    void update_workers(std::int64_t version, Deadline deadline);
    bool as_before(Deadline deadline);
    bool holds_as_before(const Workers& now) const;

    VllmServer server_;
    VllmInfo info_;
    InFlight in_flight_;
    Workers workers_;
    Server state_ = Server::running;
    std::chrono::steady_clock::time_point paused_at_{};
    Spent spent_;  // of the last commit
    OthersPause others_;
    bool others_paused_ = false;  // it stays so
    bool broken_ = false;         // it holds no whole version that is known
    bool left_paused_ = false;    // by a push that did not come to its end
};

}  // namespace tandem::engine
