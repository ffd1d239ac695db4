// The shm transport joins the contract: a receiver in this process, regions in SharedArenas.
#include <array>

#include "common/device/shared_arena.h"
#include "engine_adapter/transport/shm/transport.h"
#include "tests/contract/transport/engine_here.h"
#include "tests/support/soon.h"

namespace tandem::engine {
namespace {

class ShmRig final : public TransportRig {
  public:
    ShmRig() {
        for (auto& arena : arenas_) arena = SharedArena::create("contract", kRegionBytes);
        connection_ = std::make_shared<Connection>(Channel::connect(engine_.address(), test::soon()));
        transport_ = std::make_unique<ShmTransport>(connection_);
    }
    Transport& transport() override { return *transport_; }
    std::vector<Region> regions() override {
        return {{arenas_[0].span(), arenas_[0].fd()}, {arenas_[1].span(), arenas_[1].fd()}};
    }
    void write(std::size_t region, std::size_t offset, ConstSpan bytes) override {
        std::memcpy(arenas_[region].data() + offset, bytes.data, bytes.bytes);
    }
    std::vector<std::byte> weights(int tensor) override { return engine_.weights(tensor); }
    void stop_engine() override { engine_.stop(); }

  private:
    EngineHere engine_{Device{}};
    std::array<SharedArena, 2> arenas_;
    std::unique_ptr<ShmTransport> transport_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(shm, TransportContract,
                         testing::Values(Backend{"shm", [] { return std::make_unique<ShmRig>(); }}));

}  // namespace tandem::engine
