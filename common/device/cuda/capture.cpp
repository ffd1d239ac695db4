#include "common/device/cuda/capture.h"

#include "common/device/cuda/driver.h"
#include "common/error.h"

namespace tandem::cuda {
namespace {

std::shared_mutex& captures() {
    static auto* instance = new std::shared_mutex;  // destructors of static objects may still need it
    return *instance;
}

thread_local bool t_capturing = false;

}  // namespace

bool capturing_here() {
    return t_capturing;
}

CaptureScope::CaptureScope() {
    require(!t_capturing, "this thread captures a stream already");
    lock_ = std::unique_lock(captures());
    t_capturing = true;
}

CaptureScope::~CaptureScope() {
    t_capturing = false;
}

BesideCaptures::BesideCaptures() {
    if (!t_capturing) lock_ = std::shared_lock(captures());
}

void synchronize_context(Device device) {
    if (t_capturing)
        throw CudaError("cuCtxSynchronize", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                        "this thread captures a stream, and may not wait for " + to_string(device));
    const BesideCaptures beside;
    make_current(device);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
}

}  // namespace tandem::cuda
