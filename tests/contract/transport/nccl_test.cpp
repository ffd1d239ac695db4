// The nccl transport joins the contract, in both forms, over an NCCL of ours between the threads of this
// process on emulated GPUs.
#include "tests/contract/transport/engine_here.h"
#include "tests/contract/transport/nccl_rig.h"
#include "tests/unit/common/comm/fake_nccl.h"

namespace tandem::engine {
namespace {

Backend backend(NcclForm form) {
    return {std::string(messages::form_name(form)),
            [form] {
                ReceiverOptions options;
                options.nccl = &comm::nccl::fake::api();
                return std::make_unique<NcclRig<EngineHere, &EngineHere::stop>>(
                    std::make_unique<EngineHere>(Device{DeviceType::cuda, 1}, options),
                    NcclOptions{kTrainerGpu, form, &comm::nccl::fake::api()});
            },
            false};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(nccl, TransportContract,
                         testing::Values(backend(NcclForm::broadcast), backend(NcclForm::send)));

}  // namespace tandem::engine
