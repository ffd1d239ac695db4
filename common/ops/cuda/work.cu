// Launches, scratch and staging on a CUDA stream.
#include "common/ops/cuda/work.cuh"

#include <memory>

#include "common/device/cuda/memory.h"
#include "common/device/cuda/native.h"
#include "common/device/memory.h"
#include "common/ops/cuda/check.cuh"
#include "common/ops/cuda/staging.cuh"

namespace tandem::ops::cuda {
namespace {

// A kernel may use 48 KiB without asking; its static shared memory (at most half of that) counts.
constexpr std::size_t kPlainSharedBytes = 24 << 10;

// A graph would replay the values that the host has now.
void refuse_capture(const char* op, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(op, "cudaStreamIsCapturing", cudaStreamIsCapturing(stream, &status));
    require(status == cudaStreamCaptureStatusNone,
            "{}: host values in a stream that is being captured; give it tensors on the device", op);
}

}  // namespace

Work::Work(Stream& stream, const char* op)
    : stream_(stream), op_(op), native_(::tandem::cuda::native(stream)) {}

Work::~Work() {
    for (std::byte* memory : scratch_) cudaFreeAsync(memory, native_);
}

std::byte* Work::allocate(std::size_t bytes) {
    void* memory = nullptr;
    const cudaError_t code = cudaMallocAsync(&memory, bytes, native_);
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        std::size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);
        throw OutOfMemory(stream_.device(), bytes, free, op_);
    }
    check(op_, "cudaMallocAsync", code);
    return static_cast<std::byte*>(memory);
}

std::byte* Work::scratch(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    scratch_.push_back(allocate(bytes));
    return scratch_.back();
}

void Work::upload(const void* from, void* to, std::size_t bytes) {
    if (bytes == 0) return;
    refuse_capture(op_, native_);
    std::unique_ptr<StagingBlock> block = take_staging(stream_.device().index, native_, bytes);
    std::memcpy(block->memory.data(), from, bytes);
    check(op_, "cudaMemcpyAsync",
          cudaMemcpyAsync(to, block->memory.data(), bytes, cudaMemcpyHostToDevice, native_));
    check(op_, "cudaEventRecord", cudaEventRecord(block->used, native_));
    give_back(std::move(block));
}

const std::byte* Work::kept(std::span<const std::byte> table) {
    if (table.empty()) return nullptr;
    refuse_capture(op_, native_);
    tables_.push_back(KeptTables::of(stream_).find(table, [&]() -> KeptTables::Memory {
        std::byte* const memory = allocate(table.size());
        KeptTables::Memory result(memory, [native = native_](const std::byte* done) {
            cudaFreeAsync(const_cast<std::byte*>(done), native);
        });
        upload(table.data(), memory, table.size());
        return result;
    }));
    return tables_.back().get();
}

void Work::download(const void* from, std::size_t bytes, std::function<void(const std::byte*)> take) {
    if (bytes == 0) return;
    refuse_capture(op_, native_);
    // The block goes back once the host has read it, or never will.
    const std::shared_ptr<StagingBlock> block(
        take_staging(stream_.device().index, native_, bytes).release(),
        [](StagingBlock* done) { give_back(std::unique_ptr<StagingBlock>(done)); });
    std::byte* const host = block->memory.data();
    check(op_, "cudaMemcpyAsync", cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, native_));
    check(op_, "cudaEventRecord", cudaEventRecord(block->used, native_));
    stream_.call_host([block, host, take = std::move(take)] { take(host); });
}

void Work::clear(void* data, std::size_t bytes) {
    if (bytes > 0) check(op_, "cudaMemsetAsync", cudaMemsetAsync(data, 0, bytes, native_));
}

void Work::copy(const void* from, void* to, std::size_t bytes) {
    if (bytes == 0) return;
    check(op_, "cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, native_));
}

void Work::synchronize() {
    stream_.synchronize();
}

void Work::launch_raw(const void* kernel, std::int64_t blocks, int threads, std::size_t shared_bytes,
                      void** arguments) {
    if (shared_bytes > kPlainSharedBytes) {
        check(op_, "cudaFuncSetAttribute",
              cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_bytes)));
    }
    require(blocks <= 0x7fffffff, "{}: {} blocks are more than one launch may have", op_, blocks);
    check(op_, "cudaLaunchKernel",
          cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
                           arguments, shared_bytes, native_));
}

DeviceMemory::DeviceMemory(Stream& stream, std::size_t bytes)
    : device_(stream.device().index),
      data_(::tandem::cuda::allocate_lasting(stream.device(), bytes, "ops tables")) {}

DeviceMemory::~DeviceMemory() {
    ::tandem::cuda::free_lasting({DeviceType::cuda, device_}, data_);
}

int device_key(Stream& stream) {
    return stream.device().index;
}

}  // namespace tandem::ops::cuda
