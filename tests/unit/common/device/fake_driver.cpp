#include "tests/unit/common/device/fake_driver.h"

#include <algorithm>
#include <cstdlib>

#include "tests/unit/common/device/fake_rules.h"

namespace tandem::testing {
namespace {

thread_local CUcontext t_current = nullptr;

FakeDriver& fake() {
    return FakeDriver::get();
}

CUresult name_of(CUresult result, const char** text) {
    switch (result) {
        case CUDA_ERROR_OUT_OF_MEMORY:
            *text = "CUDA_ERROR_OUT_OF_MEMORY";
            break;
        case CUDA_ERROR_LAUNCH_FAILED:
            *text = "CUDA_ERROR_LAUNCH_FAILED";
            break;
        case CUDA_ERROR_INVALID_VALUE:
            *text = "CUDA_ERROR_INVALID_VALUE";
            break;
        default:
            *text = "CUDA_ERROR_OTHER";
    }
    return CUDA_SUCCESS;
}

void fill_devices(cuda::Driver& t) {
    t.cuInit = [](unsigned) { return fake().init; };
    t.cuDriverGetVersion = [](int* version) {
        *version = fake().version;
        return CUDA_SUCCESS;
    };
    t.cuGetErrorName = name_of;
    t.cuGetErrorString = [](CUresult, const char** text) {
        *text = "as the fake driver says";
        return CUDA_SUCCESS;
    };
    t.cuDeviceGetCount = [](int* count) {
        *count = static_cast<int>(fake().gpus.size());
        return CUDA_SUCCESS;
    };
    t.cuDeviceGet = [](CUdevice* device, int index) {
        *device = index;
        return CUDA_SUCCESS;
    };
    t.cuDeviceGetName = [](char* name, int bytes, CUdevice device) {
        std::strncpy(name, fake().gpus[static_cast<std::size_t>(device)].name.c_str(),
                     static_cast<std::size_t>(bytes));
        return CUDA_SUCCESS;
    };
    t.cuDeviceTotalMem = [](std::size_t* bytes, CUdevice device) {
        *bytes = fake().gpus[static_cast<std::size_t>(device)].bytes;
        return CUDA_SUCCESS;
    };
    t.cuDeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
        *uuid = {};
        uuid->bytes[0] = static_cast<char>(fake().gpus[static_cast<std::size_t>(device)].uuid);
        return CUDA_SUCCESS;
    };
    t.cuDeviceGetAttribute = [](int* value, CUdevice_attribute what, CUdevice device) {
        const FakeGpu& gpu = fake().gpus[static_cast<std::size_t>(device)];
        if (what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = gpu.major;
        if (what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = gpu.minor;
        if (what == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) *value = fake().pools;
        if (what == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) *value = fake().virtual_memory;
        if (what == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) *value = 1;
        return CUDA_SUCCESS;
    };
    t.cuDeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) {
        *can = 0;
        return CUDA_SUCCESS;
    };
    t.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
        *context = reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
        fake().contexts.insert(*context);
        return CUDA_SUCCESS;
    };
    t.cuCtxSetCurrent = [](CUcontext context) {
        t_current = context;
        return CUDA_SUCCESS;
    };
    t.cuCtxGetCurrent = [](CUcontext* context) {
        *context = t_current;
        return CUDA_SUCCESS;
    };
    t.cuCtxEnablePeerAccess = [](CUcontext peer, unsigned flags) {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (fake().peer_access != CUDA_SUCCESS) return fake().peer_access;
        return fake().peers.emplace(t_current, peer).second ? CUDA_SUCCESS
                                                            : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    };
    t.cuCtxSynchronize = [] {
        fake().let_go();
        return fake().sticky;
    };
}

void fill_memory(cuda::Driver& t) {
    t.cuMemGetInfo = [](std::size_t* free, std::size_t* total) {
        *total = fake().gpus[0].bytes;
        *free = *total - fake().used;
        return CUDA_SUCCESS;
    };
    t.cuMemAlloc = [](CUdeviceptr* data, std::size_t bytes) { return fake().allocate(data, bytes); };
    t.cuMemFree = [](CUdeviceptr data) {
        fake().calls.emplace_back("cuMemFree");
        return fake().free(data);
    };
    t.cuMemGetAddressRange = [](CUdeviceptr* base, std::size_t* bytes, CUdeviceptr data) {
        for (const auto* table : {&fake().blocks, &fake().opened}) {
            auto after = table->upper_bound(data);
            if (after == table->begin()) continue;
            --after;
            if (data >= after->first + after->second) continue;
            *base = after->first;
            *bytes = after->second;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_VALUE;
    };
    t.cuMemHostAlloc = [](void** data, std::size_t bytes, unsigned) {
        *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        fake().calls.emplace_back("cuMemHostAlloc");
        return CUDA_SUCCESS;
    };
    t.cuMemFreeHost = [](void* data) {
        std::free(data);
        return CUDA_SUCCESS;
    };
    t.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
        fake().push(stream,
                    [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
        return fake().sticky;
    };
    t.cuMemsetD8Async = [](CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
        fake().push(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
        return fake().sticky;
    };
    t.cuDeviceGetDefaultMemPool = [](CUmemoryPool* pool, CUdevice) {
        *pool = reinterpret_cast<CUmemoryPool>(std::uintptr_t{1});
        return CUDA_SUCCESS;
    };
    t.cuMemPoolSetAttribute = [](CUmemoryPool, CUmemPool_attribute attribute, void* value) {
        if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
            fake().pool_keeps = *static_cast<const cuuint64_t*>(value);
        return CUDA_SUCCESS;
    };
    t.cuMemPoolTrimTo = [](CUmemoryPool, std::size_t) {
        fake().calls.emplace_back("cuMemPoolTrimTo");
        return CUDA_SUCCESS;
    };
    t.cuDeviceGraphMemTrim = [](CUdevice) {
        fake().calls.emplace_back("cuDeviceGraphMemTrim");
        return CUDA_SUCCESS;
    };
    t.cuMemAllocFromPoolAsync = [](CUdeviceptr* data, std::size_t bytes, CUmemoryPool, CUstream stream) {
        const CUresult result = fake().allocate(data, bytes);
        if (result == CUDA_SUCCESS && FakeDriver::of(stream).capturing)
            FakeDriver::of(stream).taken.insert(*data);
        return result;
    };
    t.cuMemFreeAsync = [](CUdeviceptr data, CUstream stream) {
        // A graph frees what it took, and nothing else.
        if (FakeDriver::of(stream).capturing && FakeDriver::of(stream).taken.erase(data) == 0)
            return CUDA_ERROR_INVALID_VALUE;
        fake().push(stream, [data] { fake().free(data); });
        return CUDA_SUCCESS;
    };
}

void fill_virtual_memory(cuda::Driver& t) {
    t.cuMemGetAllocationGranularity = [](std::size_t* bytes, const CUmemAllocationProp*,
                                         CUmemAllocationGranularity_flags) {
        *bytes = std::size_t{2} << 20;
        return CUDA_SUCCESS;
    };
    t.cuMemAddressReserve = [](CUdeviceptr* data, std::size_t bytes, std::size_t, CUdeviceptr,
                               unsigned long long) {
        *data = reinterpret_cast<CUdeviceptr>(new std::byte[bytes]);
        fake().reserved[*data] = bytes;
        return CUDA_SUCCESS;
    };
    t.cuMemAddressFree = [](CUdeviceptr data, std::size_t) {
        delete[] reinterpret_cast<std::byte*>(data);
        return fake().reserved.erase(data) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    t.cuMemCreate = [](CUmemGenericAllocationHandle* pages, std::size_t bytes,
                       const CUmemAllocationProp* wanted, unsigned long long) {
        if (wanted->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            return CUDA_ERROR_INVALID_VALUE;
        if (fake().used + bytes > fake().gpus[0].bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        fake().used += bytes;
        *pages = ++fake().next_pages;
        fake().pages[*pages] = bytes;
        return CUDA_SUCCESS;
    };
    t.cuMemRelease = [](CUmemGenericAllocationHandle pages) {
        fake().used -= fake().pages[pages];
        return fake().pages.erase(pages) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    t.cuMemMap = [](CUdeviceptr data, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle pages,
                    unsigned long long) {
        if (fake().reserved.at(data) != bytes || fake().mapped.contains(data))
            return CUDA_ERROR_INVALID_VALUE;
        fake().mapped[data] = pages;
        return CUDA_SUCCESS;
    };
    t.cuMemUnmap = [](CUdeviceptr data, std::size_t) {
        return fake().mapped.erase(data) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    t.cuMemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
        fake().calls.emplace_back("cuMemSetAccess");
        return fake().set_access;
    };
    t.cuMemExportToShareableHandle = [](void* fd, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                        unsigned long long) {
        *static_cast<int*>(fd) = 77;
        return fake().ipc_get;
    };
    t.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* pages, void* fd,
                                          CUmemAllocationHandleType) {
        if (reinterpret_cast<std::intptr_t>(fd) != 77) return CUDA_ERROR_INVALID_VALUE;
        *pages = ++fake().next_pages;
        fake().pages[*pages] = 0;
        return CUDA_SUCCESS;
    };
}

void fill_streams(cuda::Driver& t) {
    t.cuStreamCreate = [](CUstream* stream, unsigned flags) {
        if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
        auto* made = new FakeStream;
        made->context = t_current;
        fake().streams.insert(made);
        *stream = reinterpret_cast<CUstream>(made);
        return CUDA_SUCCESS;
    };
    t.cuStreamDestroy = [](CUstream stream) {
        fake().streams.erase(&FakeDriver::of(stream));
        delete &FakeDriver::of(stream);
        return CUDA_SUCCESS;
    };
    t.cuStreamSynchronize = [](CUstream stream) {
        if (FakeDriver::of(stream).capturing) return spoil_captures();
        fake().let_go();
        return fake().sticky;
    };
    t.cuStreamWaitEvent = [](CUstream, CUevent, unsigned) {
        fake().calls.emplace_back("cuStreamWaitEvent");
        return CUDA_SUCCESS;
    };
    t.cuEventCreate = [](CUevent* event, unsigned) {
        auto* made = new FakeEvent;
        made->context = t_current;
        fake().events.insert(made);
        *event = reinterpret_cast<CUevent>(made);
        return CUDA_SUCCESS;
    };
    t.cuEventDestroy = [](CUevent event) {
        fake().events.erase(&FakeDriver::of(event));
        delete &FakeDriver::of(event);
        return CUDA_SUCCESS;
    };
    t.cuEventRecord = [](CUevent event, CUstream stream) {
        if (FakeDriver::of(event).context != FakeDriver::of(stream).context) return CUDA_ERROR_INVALID_HANDLE;
        const auto pending = FakeDriver::of(event).pending;
        ++*pending;
        fake().push(stream, [pending] { --*pending; });
        return fake().sticky;
    };
    t.cuEventQuery = [](CUevent event) {
        if (fake().sticky != CUDA_SUCCESS) return fake().sticky;
        return *FakeDriver::of(event).pending > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    t.cuEventSynchronize = [](CUevent) {
        fake().let_go();
        return fake().sticky;
    };
}

// A graph is what was pushed between begin and end of capture.
void fill_graphs(cuda::Driver& t) {
    t.cuStreamBeginCapture = [](CUstream stream, CUstreamCaptureMode mode) {
        if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return CUDA_ERROR_INVALID_VALUE;
        FakeDriver::of(stream).held = true;
        FakeDriver::of(stream).capturing = true;
        begin_capture();
        return CUDA_SUCCESS;
    };
    t.cuStreamEndCapture = [](CUstream stream, CUgraph* graph) {
        FakeDriver::of(stream).capturing = false;
        if (end_capture()) {
            FakeDriver::of(stream).queue.clear();
            FakeDriver::of(stream).held = false;
            *graph = nullptr;
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        auto* recorded = new std::deque<std::function<void()>>(std::move(FakeDriver::of(stream).queue));
        FakeDriver::of(stream).queue.clear();
        FakeDriver::of(stream).held = false;
        ++fake().graphs;
        *graph = reinterpret_cast<CUgraph>(recorded);
        return CUDA_SUCCESS;
    };
    t.cuGraphInstantiateWithFlags = [](CUgraphExec* ready, CUgraph graph, unsigned long long) {
        ++fake().graphs;
        *ready = reinterpret_cast<CUgraphExec>(new std::deque<std::function<void()>>(
            *reinterpret_cast<std::deque<std::function<void()>>*>(graph)));
        return CUDA_SUCCESS;
    };
    t.cuGraphLaunch = [](CUgraphExec graph, CUstream stream) {
        for (const auto& work : *reinterpret_cast<std::deque<std::function<void()>>*>(graph))
            fake().push(stream, work);
        return CUDA_SUCCESS;
    };
    t.cuGraphDestroy = [](CUgraph graph) {
        --fake().graphs;
        delete reinterpret_cast<std::deque<std::function<void()>>*>(graph);
        return CUDA_SUCCESS;
    };
    t.cuGraphExecDestroy = [](CUgraphExec graph) {
        --fake().graphs;
        delete reinterpret_cast<std::deque<std::function<void()>>*>(graph);
        return CUDA_SUCCESS;
    };
}

// "Another process's" memory is a block of this one under a handle that holds its address.
void fill_ipc(cuda::Driver& t) {
    t.cuIpcGetMemHandle = [](CUipcMemHandle* handle, CUdeviceptr data) {
        std::memcpy(handle, &data, sizeof data);
        return fake().ipc_get;
    };
    t.cuIpcOpenMemHandle = [](CUdeviceptr* data, CUipcMemHandle handle, unsigned flags) {
        if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
        if (fake().ipc_open != CUDA_SUCCESS) return fake().ipc_open;
        std::memcpy(data, &handle, sizeof *data);
        fake().opened[*data] = fake().blocks.at(*data);
        ++fake().times_opened[*data];
        return CUDA_SUCCESS;
    };
    t.cuIpcCloseMemHandle = [](CUdeviceptr data) {
        fake().calls.emplace_back("cuIpcCloseMemHandle");
        if (fake().times_opened[data] == 0) return CUDA_ERROR_INVALID_VALUE;
        if (--fake().times_opened[data] == 0) fake().opened.erase(data);
        return CUDA_SUCCESS;
    };
    t.cuIpcGetEventHandle = [](CUipcEventHandle* handle, CUevent event) {
        std::memcpy(handle, &event, sizeof event);
        return fake().ipc_get;
    };
    t.cuIpcOpenEventHandle = [](CUevent* event, CUipcEventHandle) {
        return fake().ipc_open == CUDA_SUCCESS ? fake().table()->cuEventCreate(event, 0) : fake().ipc_open;
    };
}

}  // namespace

const cuda::Driver* FakeDriver::table() {
    static const cuda::Driver table = [] {
        cuda::Driver t;
        fill_devices(t);
        fill_memory(t);
        fill_virtual_memory(t);
        fill_streams(t);
        fill_graphs(t);
        fill_ipc(t);
        return with_rules(t);
    }();
    return &table;
}

CUcontext current_context() {
    return t_current;
}

}  // namespace tandem::testing
