// The shm transport joins the contract: a receiver in this process, staging in a SharedArena.
#include "common/device/shared_arena.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/transport/shm/transport.h"
#include "tests/contract/transport/contract.h"
#include "tests/unit/receiver/test_target.h"

namespace tandem::engine {
namespace {

class ShmRig final : public TransportRig {
  public:
    ShmRig()
        : target_(tensors()),
          receiver_(std::make_unique<Receiver>(target_)),
          arena_(SharedArena::create("contract", kSlots * kSlotBytes)),
          staging_{arena_.span(), arena_.fd(), kSlots, kSlotBytes} {
        const Deadline deadline = Deadline::after_ms(5000);
        auto connection = std::make_shared<Connection>(Channel::connect(receiver_->address(), deadline));
        transport_ = std::make_unique<ShmTransport>(connection, tensors());
        transport_->stage(staging_, deadline);
        connection->request({{"op", "begin"}, {"version", 1}}, {}, -1, "begin", deadline);
    }
    Transport& transport() override { return *transport_; }
    const StagingArea& staging() override { return staging_; }
    ConstSpan weights(int tensor) override {
        return target_.weights()[static_cast<std::size_t>(tensor)].memory;
    }
    void stop_engine() override { receiver_.reset(); }

  private:
    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
    SharedArena arena_;
    StagingArea staging_;
    std::unique_ptr<ShmTransport> transport_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(shm, TransportContract,
                         testing::Values(Backend{"shm", [] { return std::make_unique<ShmRig>(); }}));

}  // namespace tandem::engine
