// The shm transport joins the contract: a receiver in this process, regions in SharedArenas.
#include <array>

#include "common/device/shared_arena.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/transport/shm/transport.h"
#include "tests/contract/transport/contract.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {
namespace {

class ShmRig final : public TransportRig {
  public:
    ShmRig() : target_(tensors()), receiver_(std::make_unique<Receiver>(target_)) {
        for (auto& arena : arenas_) arena = SharedArena::create("contract", kRegionBytes);
        for (const WeightSlot& weight : target_.weights())
            std::memset(weight.memory.data, 0, weight.memory.bytes);
        target_.begin_update(1);
        target_.commit_update(1);
        connection_ =
            std::make_shared<Connection>(Channel::connect(receiver_->address(), Deadline::after_ms(5000)));
        transport_ = std::make_unique<ShmTransport>(connection_);
    }
    Transport& transport() override { return *transport_; }
    std::vector<Region> regions() override {
        return {{arenas_[0].span(), arenas_[0].fd()}, {arenas_[1].span(), arenas_[1].fd()}};
    }
    void write(std::size_t region, std::size_t offset, ConstSpan bytes) override {
        std::memcpy(arenas_[region].data() + offset, bytes.data, bytes.bytes);
    }
    std::vector<std::byte> weights(int tensor) override {
        const Span memory = target_.weights()[static_cast<std::size_t>(tensor)].memory;
        return {memory.data, memory.data + memory.bytes};
    }
    void open(std::int64_t version) override {
        connection_->request({{"op", "begin"}, {"version", version}}, {}, {}, "begin",
                             Deadline::after_ms(5000));
    }
    void stop_engine() override { receiver_.reset(); }

  private:
    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
    std::array<SharedArena, 2> arenas_;
    std::shared_ptr<Connection> connection_;
    std::unique_ptr<ShmTransport> transport_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(shm, TransportContract,
                         testing::Values(Backend{"shm", [] { return std::make_unique<ShmRig>(); }}));

}  // namespace tandem::engine
