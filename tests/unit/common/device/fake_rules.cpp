#include "tests/unit/common/device/fake_rules.h"

#include <atomic>

#include "tests/unit/common/device/fake_driver.h"

namespace tandem::testing {
namespace {

enum Rule : unsigned {
    kContext = 1,       // needs one that is current
    kUnsafe = 2,        // not by a thread that captures: seen by no stream, so by no graph
    kWholeContext = 4,  // not while any thread captures
};

thread_local bool t_capturing = false;
std::atomic<int> g_captures{0};
std::atomic<bool> g_spoilt{false};

CUresult refusal(unsigned rules) {
    if ((rules & kContext) != 0 && current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if ((rules & kUnsafe) != 0 && t_capturing) return spoil_captures();
    if ((rules & kWholeContext) != 0 && g_captures.load() > 0) return spoil_captures();
    return CUDA_SUCCESS;
}

cuda::Driver& plain_table() {
    static cuda::Driver table;
    return table;
}

template <auto member, unsigned rules>
struct Guarded;
template <typename... A, CUresult (*cuda::Driver::*member)(A...), unsigned rules>
struct Guarded<member, rules> {
    static CUresult call(A... arguments) {
        const CUresult refused = refusal(rules);
        return refused == CUDA_SUCCESS ? (plain_table().*member)(arguments...) : refused;
    }
};

template <unsigned rules, auto... members>
void guard(cuda::Driver& table) {
    ((table.*members = Guarded<members, rules>::call), ...);
}

}  // namespace

cuda::Driver with_rules(const cuda::Driver& plain) {
    using D = cuda::Driver;
    plain_table() = plain;
    D table = plain;
    guard<kContext, &D::cuStreamCreate, &D::cuStreamDestroy, &D::cuMemGetInfo, &D::cuMemGetAddressRange,
          &D::cuMemcpyAsync, &D::cuMemsetD8Async, &D::cuMemAllocFromPoolAsync, &D::cuMemFreeAsync,
          &D::cuStreamWaitEvent, &D::cuStreamSynchronize, &D::cuEventCreate, &D::cuEventDestroy,
          &D::cuEventRecord, &D::cuStreamBeginCapture, &D::cuStreamEndCapture,
          &D::cuGraphInstantiateWithFlags, &D::cuGraphLaunch, &D::cuGraphExecDestroy, &D::cuIpcGetMemHandle,
          &D::cuIpcGetEventHandle>(table);
    guard<kContext | kUnsafe, &D::cuMemAlloc, &D::cuMemFree, &D::cuMemHostAlloc, &D::cuMemFreeHost,
          &D::cuEventQuery, &D::cuEventSynchronize, &D::cuIpcOpenMemHandle, &D::cuIpcCloseMemHandle,
          &D::cuIpcOpenEventHandle>(table);
    guard<kUnsafe, &D::cuMemCreate, &D::cuMemUnmap, &D::cuMemMap, &D::cuMemPoolTrimTo,
          &D::cuDeviceGraphMemTrim>(table);
    guard<kContext | kUnsafe | kWholeContext, &D::cuCtxSynchronize>(table);
    return table;
}

void begin_capture() {
    t_capturing = true;
    ++g_captures;
}

bool end_capture() {
    t_capturing = false;
    --g_captures;
    return g_spoilt.exchange(false);
}

CUresult spoil_captures() {
    g_spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace tandem::testing
