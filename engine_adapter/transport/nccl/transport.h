// Buckets over NCCL: trainer rank 0 sends from its own GPU's memory, each engine rank takes the bytes into
// memory on its own GPU and copies them, cast and checksummed, into its weights. One broadcast where every
// engine rank wants the same bytes, else a send to each of its own.
//
// Order: the regions' bytes are there when a bucket is announced (the trainer has read their checksums), and
// a reply says that the engine has copied and verified them, so no event crosses between the processes.
#pragma once

#include "engine_adapter/transport/nccl/group.h"
#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

// To engine rank `engine` of the group, which the transports of all engine ranks share. A failure in load or
// wait_loaded ends the group; the next load forms a new one.
class NcclTransport final : public Transport {
  public:
    NcclTransport(std::shared_ptr<Connection> connection, std::shared_ptr<NcclGroup> group, int engine)
        : Transport(std::move(connection)), group_(std::move(group)), engine_(engine) {}
    ~NcclTransport() override;

    // Regions: of this process, on the group's GPU.
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    double wait_loaded(int bucket, Deadline deadline) override;
    void forget_in_flight() override;

  private:
    std::int64_t request_load(nlohmann::json header, int bucket, std::span<const ops::Checksum> checksums,
                              Deadline deadline) override;

    std::shared_ptr<NcclGroup> group_;
    const int engine_;
};

}  // namespace tandem::engine
