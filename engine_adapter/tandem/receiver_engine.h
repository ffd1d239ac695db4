// The half of an Engine that third-party servers share which run our receiver beside the weights that they serve
// (sync/python/tandem_sync/vllm, tandem_sync.sglang): buckets go to it while the server generates, and the version staged there is
// whole and verified before anything of the server is touched. What a server is told at commit, and what it serves after
// a failure, is its own folder's.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/connect.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/tandem/engine.h"
#include "engine_adapter/tandem/route.h"

namespace tandem::engine {

class ReceiverEngine : public Engine {
  public:
    const Capabilities& capabilities() const override { return capabilities_; }
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    void release(Deadline deadline) override;
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                 Deadline deadline) override;
    std::function<double()> start_probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                                        Deadline deadline) override;
    // Of the staged version: deltas are relative to that.
    Held held(Deadline deadline) override;
    void begin(std::int64_t version, Deadline deadline) override;
    BucketLoader& buckets() override { return receiver_->buckets(); }
    double verify(std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums,
               Deadline deadline) override;  // throws BadInput: the staged version is copied into the model
    // Of what the server loaded last. Throws ProtocolError where it holds another version than is staged.
    std::vector<ops::Checksum> checksums(Deadline deadline) override;

  protected:
    explicit ReceiverEngine(bool rollback) : rollback_(rollback) {}

    virtual std::string weight_version(Deadline deadline) = 0;  // as the server says it

    // Waits for its turn where another trainer is connected. kind: "vllm". version: that the server holds. server: its
    // URL. Throws TransportError.
    void connect_receiver(const std::string& kind, std::int64_t version, const Whereabouts& at,
                          const EngineUrl& server, const ConnectOptions& options, Deadline deadline);
    void stage(std::int64_t version, const ops::Checksum& manifest, Deadline deadline);
    void loaded(std::int64_t version);  // the server holds it, as it says
    void drop_staged(const std::string& reason, Deadline deadline);

    Capabilities capabilities_;

  private:
    std::unique_ptr<TandemEngine> receiver_;
    bool rollback_;  // until the first version was loaded
};

// What a plug-in says of its receiver: "receiver", "host", "data_port". Throws nlohmann::json::exception.
Whereabouts whereabouts_of(const nlohmann::json& state);

// Throws TransportError naming the phase: the plug-in speaks another protocol than this program.
void require_protocol(const nlohmann::json& state, int ours, const std::string& server,
                      const std::string& phase);

}  // namespace tandem::engine
