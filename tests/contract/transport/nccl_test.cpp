// The nccl transport joins the contract over an NCCL of ours on emulated GPUs, in both forms; then what is
// its own: several engine ranks, who is late, what fails in NCCL, and how either side ends.
#include <chrono>

#include "engine_adapter/receiver/client.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/transport/nccl/transport.h"
#include "tests/contract/transport/contract.h"
#include "tests/unit/comm/fake_nccl.h"
#include "tests/unit/receiver/test_target.h"

namespace tandem::engine {
namespace {

namespace fake = comm::nccl::fake;

[[maybe_unused]] const int kEmulate = ::setenv("TANDEM_EMULATED_GPUS", "3", 1);
const Device kTrainerGpu{DeviceType::cuda, 0};

// An engine rank on a GPU of its own, with a whole version of zeros.
class EngineSide {
  public:
    explicit EngineSide(int gpu) : gpu_{DeviceType::cuda, gpu}, target_(TransportRig::tensors(), true, gpu_) {
        for (const WeightSlot& weight : target_.weights()) {
            const std::vector<std::byte> zeros(weight.memory.bytes);
            test::upload(gpu_, {zeros.data(), zeros.size()}, weight.memory);
        }
        target_.begin_update(1);
        target_.commit_update(1);
        ReceiverOptions options;
        options.nccl = &fake::api();
        receiver_ = std::make_unique<Receiver>(target_, options);
    }
    const std::string& address() const { return receiver_->address(); }
    const TestTarget& target() const { return target_; }
    std::vector<std::byte> weights(int tensor) const {
        return test::download(gpu_, target_.weights()[static_cast<std::size_t>(tensor)].memory);
    }

  private:
    const Device gpu_;
    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
};

NcclOptions options_of(std::optional<NcclForm> form) {
    return {kTrainerGpu, form, &fake::api()};
}

// The contract's one engine rank.
class NcclRig final : public TransportRig {
  public:
    explicit NcclRig(NcclForm form) : engine_(std::make_unique<EngineSide>(1)) {
        connection_ =
            std::make_shared<Connection>(Channel::connect(engine_->address(), Deadline::after_ms(5000)));
        transport_ = std::make_unique<NcclTransport>(
            connection_, std::make_shared<NcclGroup>(std::vector{connection_}, options_of(form)), 0);
    }
    Transport& transport() override { return *transport_; }
    std::vector<Region> regions() override {
        return {{arenas_[0].span(), -1, kTrainerGpu}, {arenas_[1].span(), -1, kTrainerGpu}};
    }
    void write(std::size_t region, std::size_t offset, ConstSpan bytes) override {
        test::upload(kTrainerGpu, bytes, arenas_[region].span().subspan(offset, bytes.bytes));
    }
    std::vector<std::byte> weights(int tensor) override { return engine_->weights(tensor); }
    void open(std::int64_t version) override {
        connection_->request({{"op", "begin"}, {"version", version}}, {}, {}, "begin",
                             Deadline::after_ms(5000));
    }
    void stop_engine() override { engine_.reset(); }

  private:
    const ExportArena arenas_[2]{ExportArena::create(kTrainerGpu, kRegionBytes),
                                 ExportArena::create(kTrainerGpu, kRegionBytes)};
    std::unique_ptr<EngineSide> engine_;
    std::shared_ptr<Connection> connection_;
    std::unique_ptr<NcclTransport> transport_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    nccl, TransportContract,
    testing::Values(Backend{"broadcast", [] { return std::make_unique<NcclRig>(NcclForm::broadcast); },
                            false},
                    Backend{"send", [] { return std::make_unique<NcclRig>(NcclForm::send); }, false}));

}  // namespace tandem::engine
