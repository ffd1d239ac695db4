// A driver that is not there: the table of common/device/cuda/driver.h over host memory, whose answers a test
// sets. Streams run their work at once, or, while held, when they are let go. It keeps CUDA's rules on who
// may call what (fake_rules.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/device/cuda/driver.h"

namespace tandem::testing {

struct FakeGpu {
    std::string name = "Fake H200";
    int major = 9;
    int minor = 0;
    std::size_t bytes = std::size_t{1} << 30;
    unsigned char uuid = 0;  // its first byte; the others are 0
};

struct FakeStream {
    CUcontext context = nullptr;
    std::deque<std::function<void()>> queue;
    bool held = false;
    bool capturing = false;
    std::set<CUdeviceptr> taken;  // in the capture
};

struct FakeEvent {
    CUcontext context = nullptr;
    std::shared_ptr<int> pending =
        std::make_shared<int>(0);  // an event may be destroyed before it is reached
};

struct FakeDriver {
    std::vector<FakeGpu> gpus{FakeGpu{}};
    int version = 13000;
    int pools = 1;
    int virtual_memory = 1;
    int graphs = 0;                // alive, recorded or ready
    std::set<CUcontext> contexts;  // that were made
    CUresult peer_access = CUDA_SUCCESS;
    std::set<std::pair<CUcontext, CUcontext>> peers;  // who reaches whose memory
    CUresult set_access = CUDA_SUCCESS;
    CUresult init = CUDA_SUCCESS;
    CUresult ipc_get = CUDA_SUCCESS;
    CUresult ipc_open = CUDA_SUCCESS;
    CUresult sticky =
        CUDA_SUCCESS;  // what every look at the device answers: an error that came asynchronously
    std::size_t used = 0;
    cuuint64_t pool_keeps = 0;  // bytes that are free, over a wait
    std::map<CUdeviceptr, std::size_t> blocks;
    std::map<CUdeviceptr, std::size_t> opened;  // mapped from "another process"
    std::map<CUdeviceptr, int> times_opened;
    std::map<CUdeviceptr, std::size_t> reserved;  // addresses
    std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
    CUmemGenericAllocationHandle next_pages = 100;
    std::map<CUmemGenericAllocationHandle, std::size_t> pages;
    std::vector<std::string> calls;  // those that tests look for
    std::set<FakeStream*> streams;
    std::set<FakeEvent*> events;

    static FakeDriver& get() {
        static FakeDriver instance;
        return instance;
    }
    static FakeStream& of(CUstream stream) { return *reinterpret_cast<FakeStream*>(stream); }
    static FakeEvent& of(CUevent event) { return *reinterpret_cast<FakeEvent*>(event); }

    void push(CUstream stream, std::function<void()> work) {
        if (of(stream).held) {
            of(stream).queue.push_back(std::move(work));
        } else {
            work();
        }
    }
    void hold() {
        for (FakeStream* stream : streams) stream->held = true;
    }
    void let_go() {
        for (FakeStream* stream : streams) {
            stream->held = false;
            while (!stream->queue.empty()) {
                const auto work = std::move(stream->queue.front());
                stream->queue.pop_front();
                work();
            }
        }
    }
    CUresult allocate(CUdeviceptr* data, std::size_t bytes) {
        if (used + bytes > gpus[0].bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        *data = reinterpret_cast<CUdeviceptr>(new std::byte[bytes]);
        blocks[*data] = bytes;
        used += bytes;
        return CUDA_SUCCESS;
    }
    CUresult free(CUdeviceptr data) {
        const auto found = blocks.find(data);
        if (found == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
        used -= found->second;
        delete[] reinterpret_cast<std::byte*>(data);
        blocks.erase(found);
        return CUDA_SUCCESS;
    }

    const cuda::Driver* table();
};

CUcontext current_context();  // of the calling thread

}  // namespace tandem::testing
