// The nccl transport between two processes joins the contract: over NCCL where two GPUs are, else over the
// emulated one (TANDEM_EMULATED_GPUS=2). On a machine with one GPU only what NCCL cannot do there is tested.
#include <algorithm>

#include "common/device/devices.h"
#include "tests/contract/transport/engine_process.h"
#include "tests/contract/transport/nccl_rig.h"
#include "tests/support/run_tests.h"

namespace tandem::engine {
namespace {

int gpus() {
    const std::vector<Device> devices = available_devices();
    return static_cast<int>(std::count_if(devices.begin(), devices.end(),
                                          [](Device one) { return one.type == DeviceType::cuda; }));
}

std::vector<Backend> backends() {
    std::vector<Backend> list;
    if (gpus() < 2) return list;
    for (const NcclForm form : {NcclForm::broadcast, NcclForm::send}) {
        list.push_back({std::string(messages::form_name(form)),
                        [form] {
                            return std::make_unique<NcclRig<EngineProcess, &EngineProcess::kill>>(
                                std::make_unique<EngineProcess>(), NcclOptions{kTrainerGpu, form, nullptr});
                        },
                        false});
    }
    return list;
}

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportContract);
INSTANTIATE_TEST_SUITE_P(nccl, TransportContract, testing::ValuesIn(backends()));

TEST(NcclOnOneGpu, IsRefusedAndSaysWhatToDo) {
    const EngineHere engine(kTrainerGpu);
    const auto clients = connect_ranks({engine.address()}, Deadline::after_ms(20'000),
                                       {.nccl = NcclOptions{.device = kTrainerGpu}});
    const ExportArena arena = ExportArena::create(kTrainerGpu, TransportRig::kRegionBytes);
    try {
        clients[0]->attach({{arena.span(), -1, kTrainerGpu}}, {}, Deadline::after_ms(20'000));
        FAIL() << "two ranks on one GPU";
    } catch (const ProtocolError& error) {
        EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("refuses two ranks on one GPU"),
                                                 testing::HasSubstr("cuda_ipc")));
    }
}

}  // namespace tandem::engine

// An engine's process takes the second GPU; the trainer's end is on the first.
int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "--engine")
        return tandem::engine::run_engine_process({tandem::DeviceType::cuda, 1});
    return tandem::test::run_tests(argc, argv);
}
