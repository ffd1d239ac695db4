// Buckets over TCP, to an engine rank of any host: the bytes that it keeps and no others, packed (packed.h), over
// several connections of their own; which bucket they are travels over the channel.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "engine_adapter/transport/tcp/dial.h"
#include "engine_adapter/transport/tcp/sender.h"
#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

// A failure in load or wait_loaded, or an abort, ends the data connections; the next load makes new ones.
class TcpTransport final : public Transport {
  public:
    // to: where the engine rank at the other end of `connection` listens.
    TcpTransport(std::shared_ptr<Connection> connection, TcpAddress to, const TcpOptions& options)
        : Transport(connection), connection_(std::move(connection)), to_(std::move(to)), options_(options) {}

    // Regions: of this process's host memory.
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    // Connects where nothing is connected yet. load() may follow for these buckets alone, in their order.
    void send_ahead(int bucket, Deadline deadline) override;
    double wait_loaded(int bucket, Deadline deadline) override;
    void forget_in_flight() override;

  private:
    std::int64_t request_load(nlohmann::json header, int bucket, std::span<const ops::Checksum> checksums,
                              Deadline deadline) override;
    void request_changes(nlohmann::json header, int bucket, std::span<const DeltaEntry> entries,
                         Deadline deadline) override;
    void open(const std::string& phase, Deadline deadline);
    void disconnect();
    // The bucket with that serial is being loaded: says so in the message that asks for it.
    void name_serial(nlohmann::json& header, int bucket, std::uint64_t serial, Deadline deadline);
    PackedBucket pack(int bucket) const;
    PackedBucket pack(std::span<const DeltaEntry> entries) const;

    const std::shared_ptr<Connection> connection_;
    const TcpAddress to_;
    const TcpOptions options_;
    std::vector<Span> regions_;
    TransferPlan plan_;
    std::unique_ptr<TcpSender> sender_;  // null: no connections
    std::uint64_t serial_ = 0;           // of the next bucket over them
    std::deque<int> ahead_;              // buckets that were sent and not yet loaded; the last is serial_ - 1
    std::map<int, std::uint64_t> serials_;  // of the buckets that are being loaded
};

}  // namespace tandem::engine
