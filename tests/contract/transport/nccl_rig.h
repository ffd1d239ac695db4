// The trainer's end of the nccl transport on GPU 0, whatever engine rank is at the other.
#pragma once

#include "engine_adapter/connect.h"
#include "engine_adapter/transport/nccl/transport.h"
#include "tests/contract/transport/contract.h"
#include "tests/support/device_bytes.h"
#include "tests/support/soon.h"

namespace tandem::engine {

using test::soon;

inline constexpr Device kTrainerGpu{DeviceType::cuda, 0};

// `Side`: has address() and weights(); `Stop` ends it.
template <typename Side, void (Side::*Stop)()>
class NcclRig final : public TransportRig {
  public:
    NcclRig(std::unique_ptr<Side> engine, const NcclOptions& options) : engine_(std::move(engine)) {
        connection_ = std::make_shared<Connection>(Channel::connect(engine_->address(), soon()));
        transport_ = std::make_unique<NcclTransport>(
            connection_, std::make_shared<NcclGroup>(std::vector{connection_}, options), 0);
    }
    Transport& transport() override { return *transport_; }
    std::vector<Region> regions() override {
        return {{arenas_[0].span(), -1, kTrainerGpu}, {arenas_[1].span(), -1, kTrainerGpu}};
    }
    void write(std::size_t region, std::size_t offset, ConstSpan bytes) override {
        test::upload(kTrainerGpu, bytes, arenas_[region].span().subspan(offset, bytes.bytes));
    }
    std::vector<std::byte> weights(int tensor) override { return engine_->weights(tensor); }
    void stop_engine() override { ((*engine_).*Stop)(); }

  private:
    const ExportArena arenas_[2]{ExportArena::create(kTrainerGpu, kRegionBytes),
                                 ExportArena::create(kTrainerGpu, kRegionBytes)};
    std::unique_ptr<Side> engine_;
    std::unique_ptr<NcclTransport> transport_;
};

}  // namespace tandem::engine
