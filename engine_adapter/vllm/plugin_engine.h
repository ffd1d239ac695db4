// A vLLM server that was started with our weight-transfer backend (sync/python/tandem_vllm), as sync sees it. Buckets go
// to the receiver in its first worker, which stages and verifies whole versions while the server generates; commit pauses
// it, has every worker load what is staged, layer by layer, and tells it the version.
//
//   failed                                   serves afterwards
//   before a worker began to load            the version from before: abort resumes it
//   while one loads, or its answer is lost   nothing: it stays paused, with weight version "loading N"; the next push heals it
// What VllmEngine says of pauses of others holds here. One that a killed pusher left is known by that weight version, or
// by the note that it left with the workers before it paused.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine_adapter/connect.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/tandem/engine.h"
#include "engine_adapter/tandem/route.h"
#include "engine_adapter/vllm/probe.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

class VllmPluginEngine final : public Engine {
  public:
    // info: as probe_vllm gave it. url: of the server, and how its receiver is reached (tandem/url.h).
    VllmPluginEngine(VllmServer server, VllmInfo info, const EngineUrl& url, const ConnectOptions& options,
                     Deadline deadline);
    ~VllmPluginEngine() override;

    const Capabilities& capabilities() const override { return capabilities_; }
    std::string peer() const override { return server_.name(); }
    void pause(Deadline deadline) override;
    void resume(Deadline deadline) override;
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    void release(Deadline deadline) override;
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                 Deadline deadline) override;
    // Of what is staged: deltas are relative to that.
    Held held(Deadline deadline) override;
    void begin(std::int64_t version, Deadline deadline) override;
    void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void load_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) override;
    double wait_loaded(int bucket, Deadline deadline) override;
    double verify(std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums,
               Deadline deadline) override;  // throws BadInput: it packs its weights
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void abort(const std::string& reason, Deadline deadline) override;
    // Of what the workers loaded last. Throws ProtocolError where the server holds another version than is staged.
    std::vector<ops::Checksum> checksums(Deadline deadline) override;

  private:
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
    std::string in_flight_;  // "wait", "abort"
    bool rollback_;          // until the first commit
    Workers workers_;
    std::unique_ptr<TandemEngine> receiver_;
    Capabilities capabilities_;
    Server state_ = Server::running;
    std::chrono::steady_clock::time_point paused_at_{};
    Spent spent_;  // of the last commit
    bool others_paused_ = false;
    bool broken_ = false;       // it holds no whole version that is known
    bool left_paused_ = false;  // by a push that did not come to its end
};

}  // namespace tandem::engine
