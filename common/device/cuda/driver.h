// The driver's entry points, opened at run time: nothing links libcuda, so a CUDA build starts without it.
// Every call of this folder goes through the table, and a test puts another one in its place.
#pragma once

#include <cuda.h>

#include <string>

#include "common/device/device.h"
#include "common/device/memory.h"

// cuda.h renames some of these to their current version (cuMemAlloc_v2); so are the members and the symbols.
#define TANDEM_DRIVER_ENTRIES(X)      \
    X(cuInit)                         \
    X(cuDriverGetVersion)             \
    X(cuGetErrorName)                 \
    X(cuGetErrorString)               \
    X(cuDeviceGetCount)               \
    X(cuDeviceGet)                    \
    X(cuDeviceGetName)                \
    X(cuDeviceTotalMem)               \
    X(cuDeviceGetUuid)                \
    X(cuDeviceGetAttribute)           \
    X(cuDeviceCanAccessPeer)          \
    X(cuDevicePrimaryCtxRetain)       \
    X(cuCtxSetCurrent)                \
    X(cuCtxGetCurrent)                \
    X(cuCtxEnablePeerAccess)          \
    X(cuCtxSynchronize)               \
    X(cuMemGetInfo)                   \
    X(cuMemAlloc)                     \
    X(cuMemFree)                      \
    X(cuMemGetAddressRange)           \
    X(cuMemHostAlloc)                 \
    X(cuMemFreeHost)                  \
    X(cuMemcpyAsync)                  \
    X(cuMemsetD8Async)                \
    X(cuDeviceGetDefaultMemPool)      \
    X(cuMemPoolSetAttribute)          \
    X(cuMemPoolTrimTo)                \
    X(cuMemAllocFromPoolAsync)        \
    X(cuMemFreeAsync)                 \
    X(cuStreamCreate)                 \
    X(cuStreamDestroy)                \
    X(cuStreamSynchronize)            \
    X(cuStreamWaitEvent)              \
    X(cuEventCreate)                  \
    X(cuEventDestroy)                 \
    X(cuEventRecord)                  \
    X(cuEventQuery)                   \
    X(cuEventSynchronize)             \
    X(cuStreamBeginCapture)           \
    X(cuStreamEndCapture)             \
    X(cuGraphInstantiateWithFlags)    \
    X(cuGraphLaunch)                  \
    X(cuGraphExecDestroy)             \
    X(cuGraphDestroy)                 \
    X(cuDeviceGraphMemTrim)           \
    X(cuIpcGetMemHandle)              \
    X(cuIpcOpenMemHandle)             \
    X(cuIpcCloseMemHandle)            \
    X(cuIpcGetEventHandle)            \
    X(cuIpcOpenEventHandle)           \
    X(cuMemGetAllocationGranularity)  \
    X(cuMemCreate)                    \
    X(cuMemRelease)                   \
    X(cuMemExportToShareableHandle)   \
    X(cuMemImportFromShareableHandle) \
    X(cuMemAddressReserve)            \
    X(cuMemAddressFree)               \
    X(cuMemMap)                       \
    X(cuMemUnmap)                     \
    X(cuMemSetAccess)                 \
    X(cuTensorMapEncodeTiled)

namespace tandem::cuda {

struct Driver {
#define TANDEM_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
    TANDEM_DRIVER_ENTRIES(TANDEM_DRIVER_MEMBER)
#undef TANDEM_DRIVER_MEMBER
};

// The oldest driver that this build's runtime works with: its own major version (13000).
constexpr int kNeededDriver = CUDA_VERSION / 1000 * 1000;

struct OpenedDriver {
    const Driver* table = nullptr;  // null: there is none
    std::string reason;             // why
};

const OpenedDriver& opened_driver();  // opened on first use; never throws
const Driver& driver();               // throws DeviceUnavailable

// For tests: `table` takes the driver's place (null: as if there were none), and all that was asked of the
// one before is forgotten. Nothing of a GPU may be alive.
void replace_driver(const Driver* table, const std::string& reason = "");
int driver_generation();  // counts replacements

// Throw CudaError naming the call.
void check(CUresult result, const char* call);
std::string error_text(CUresult result);  // "CUDA_ERROR_X: what it means"

// Makes the device's primary context current on the calling thread: before every call that needs one.
void make_current(Device device);
// Some context for what belongs to no device: the one that is current, which stays, else one that the process
// uses, else the first GPU's.
void make_some_current();
CUdevice native_device(Device device);

}  // namespace tandem::cuda
