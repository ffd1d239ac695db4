// The cuda_ipc transport joins the contract: on a GPU where one is, else (TANDEM_EMULATED_GPUS) on the
// emulated one. Once with the receiver in this process, once in another one, which opens this one's handles.
#include <unistd.h>

#include "common/device/export.h"
#include "engine_adapter/transport/cuda_ipc/transport.h"
#include "tests/contract/transport/engine_process.h"
#include "tests/support/run_tests.h"
#include "tests/support/soon.h"

namespace tandem::engine {
namespace {

const Device kGpu{DeviceType::cuda, 0};

class CudaIpcRig : public TransportRig {
  public:
    Transport& transport() override { return *transport_; }
    std::vector<Region> regions() override {
        return {{arenas_[0].span(), -1, kGpu}, {arenas_[1].span(), -1, kGpu}};
    }
    void write(std::size_t region, std::size_t offset, ConstSpan bytes) override {
        test::upload(kGpu, bytes, arenas_[region].span().subspan(offset, bytes.bytes));
    }

  protected:
    void connect(const std::string& address) {
        connection_ = std::make_shared<Connection>(Channel::connect(address, test::soon()));
        transport_ = std::make_unique<CudaIpcTransport>(connection_);
    }

    const ExportArena arenas_[2]{ExportArena::create(kGpu, kRegionBytes),
                                 ExportArena::create(kGpu, kRegionBytes)};
    std::unique_ptr<CudaIpcTransport> transport_;
};

class OneProcess final : public CudaIpcRig {
  public:
    OneProcess() : engine_(std::make_unique<EngineHere>(kGpu)) { connect(engine_->address()); }
    std::vector<std::byte> weights(int tensor) override { return engine_->weights(tensor); }
    void stop_engine() override { engine_.reset(); }

  private:
    std::unique_ptr<EngineHere> engine_;
};

class TwoProcesses final : public CudaIpcRig {
  public:
    TwoProcesses() { connect(engine_.address()); }
    std::vector<std::byte> weights(int tensor) override { return engine_.weights(tensor); }
    void stop_engine() override { engine_.kill(); }

  private:
    EngineProcess engine_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    cuda_ipc, TransportContract,
    testing::Values(Backend{"one process", [] { return std::make_unique<OneProcess>(); }, false},
                    Backend{"two processes", [] { return std::make_unique<TwoProcesses>(); }, false}));

namespace {

// Handles that the engine's process cannot open, and its answers.
class Refusals : public testing::Test {
  protected:
    std::string refusal(const Region& region) {
        TransferPlan plan;
        plan.first = {0};
        try {
            rig_.transport().attach({region}, plan, test::soon());
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing was refused";
    }
    TwoProcesses rig_;
};

TEST_F(Refusals, MemoryThatCannotBeShared) {
    std::vector<std::byte> host(4096);
    EXPECT_THAT(refusal({{host.data(), host.size()}, -1, {}}), testing::HasSubstr("not on the CPU"));
    const Stream stream = Stream::make_compute(kGpu);
    const Buffer pooled(4096, "pooled", device_pool(kGpu));
    EXPECT_THAT(refusal({pooled.span(), -1, kGpu}), testing::HasSubstr("cannot be shared"));
}

TEST_F(Refusals, AHandleOfMemoryThatIsGone) {
    RegionHandle handle;
    {
        const ExportArena arena = ExportArena::create(kGpu, 4096);
        handle = region_handle(kGpu, arena.span());
    }
    EXPECT_THAT(refusal({{nullptr, 4096}, -1, kGpu, handle}), testing::HasSubstr("attach"));
}

TEST_F(Refusals, NoHandleAndMoreThanWasExported) {
    const ExportArena arena = ExportArena::create(kGpu, 4096);
    RegionHandle handle = region_handle(kGpu, arena.span());
    RegionHandle nonsense = handle;
    nonsense.handle = {};
    EXPECT_THAT(refusal({{nullptr, 4096}, -1, kGpu, nonsense}), testing::HasSubstr("attach"));
    EXPECT_THAT(refusal({{nullptr, handle.allocation_bytes + 1}, -1, kGpu, handle}),
                testing::HasSubstr("are not inside the allocation"));
    handle.offset = ~std::uint64_t{0} >> 1;
    EXPECT_THAT(refusal({{nullptr, 4096}, -1, kGpu, handle}),
                testing::HasSubstr("are not inside the allocation"));
    handle.pid = ::getpid();  // another process's number tells it nothing
    handle.offset = 0;
    handle.allocation_bytes += std::uint64_t{1} << 40;
    EXPECT_NE(refusal({{nullptr, 4096}, -1, kGpu, handle}), "nothing was refused");
}

}  // namespace
}  // namespace tandem::engine

int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "--engine")
        return tandem::engine::run_engine_process(tandem::engine::kGpu);
    return tandem::test::run_tests(argc, argv);
}
