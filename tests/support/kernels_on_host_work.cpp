// common/ops/cuda/work.h where kernels run on the host: everything happens at once. Device memory ends at a
// page that nobody may touch, so that a kernel that reads too far crashes.

#include <cstdint>
#include <cstring>

#include "common/error.h"
#include "common/ops/cuda/work.cuh"
#include "tests/support/guarded_memory.h"

namespace tandem::ops::on_host {

Work::Work(Stream& stream, const char* op) : stream_(stream), op_(op) {}

Work::~Work() {
    for (std::byte* memory : scratch_) tests::guarded_free(memory);
}

std::byte* Work::scratch(std::size_t bytes) {
    scratch_.push_back(tests::guarded_allocate(bytes));
    return scratch_.back();
}

void Work::upload(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

void Work::download(const void* from, std::size_t bytes, std::function<void(const std::byte*)> take) {
    if (bytes > 0) take(static_cast<const std::byte*>(from));
}

void Work::clear(void* data, std::size_t bytes) {
    if (bytes > 0) std::memset(data, 0, bytes);
}

void Work::copy(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

void Work::synchronize() {
    stream_.synchronize();
}

DeviceMemory::DeviceMemory(Stream&, std::size_t bytes) : device_(0), data_(tests::guarded_allocate(bytes)) {}

DeviceMemory::~DeviceMemory() {
    tests::guarded_free(data_);
}

int device_key(Stream&) {
    return -1;
}

}  // namespace tandem::ops::on_host
