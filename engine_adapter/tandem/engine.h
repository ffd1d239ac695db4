// An engine of ours as sync sees it: a Receiver (receiver/receiver.h) at the other end of a channel.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine_adapter/connect.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/transport/nccl/group.h"
#include "engine_adapter/transport/tcp/dial.h"
#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

// The ranks of one engine: each "tandem://HOST:PORT", "http://HOST:PORT" or "unix:///PATH" of a tandem-engine, whose
// GET /model_info names its receiver (options: url.h), or "unix-abstract:NAME" or "tcp://HOST:PORT" of a receiver. An
// engine of another host is reached over TCP. Throws TransportError when nothing answers or no receiver runs there.
std::vector<std::unique_ptr<Engine>> connect_tandem(const std::vector<std::string>& names,
                                                    const ConnectOptions& options, Deadline deadline);

class TandemEngine final : public Engine {
  public:
    TandemEngine(Channel channel, const ConnectOptions& options, Deadline deadline);

    const std::shared_ptr<Connection>& connection() const { return connection_; }
    // From now on buckets go through this group, as its engine rank `rank`.
    void join(const std::shared_ptr<NcclGroup>& group, int rank);
    // The next version need not be above those that the engine has had: its number is checked elsewhere.
    void allow_rollback() { rollback_ = true; }
    // From now on buckets go over TCP, to where this engine rank listens.
    void go_over_tcp(const TcpAddress& to, const TcpOptions& options);

    const Capabilities& capabilities() const override { return capabilities_; }
    std::string peer() const override { return connection_->peer(); }
    void pause(Deadline deadline) override;
    void resume(Deadline deadline) override;
    double packed_ms() const override { return packed_ms_; }
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    void release(Deadline deadline) override;
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                 Deadline deadline) override;
    std::function<double()> start_probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                                        Deadline deadline) override;
    Held held(Deadline deadline) override;
    void begin(std::int64_t version, Deadline deadline) override;
    BucketLoader& buckets() override { return *transport_; }
    double verify(std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void commit_ahead(std::int64_t version, const ops::Checksum& manifest, bool only_rank,
                      Deadline deadline) override;
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void abort(const std::string& reason, Deadline deadline) override;
    std::vector<ops::Checksum> checksums(Deadline deadline) override;

  private:
    // Where the regions lie says how the engine comes to them.
    std::unique_ptr<Transport> make_transport(Device regions) const;
    // With a checksum for each transfer of the plan.
    Message request_all(nlohmann::json header, std::span<const ops::Checksum> checksums, const char* phase,
                        Deadline deadline);

    std::shared_ptr<Connection> connection_;
    bool rollback_;  // until the first commit
    Capabilities capabilities_;
    Device device_;              // of the regions that are attached
    bool over_network_ = false;  // NCCL or TCP, wherever the regions lie
    std::unique_ptr<Transport> transport_;
    struct Asked {
        std::int64_t request = 0;
        std::int64_t version = 0;
        ops::Checksum manifest;
        bool resumes = false;
    };
    std::optional<Asked> commit_;  // that was asked ahead
    bool resumed_ = false;         // by the last commit
    double packed_ms_ = 0;         // as the last pause answered
};

}  // namespace tandem::engine
