// common/ops/cuda/work.h where kernels run on the host: everything happens at once. Device memory ends at a
// page that nobody may touch, so that a kernel that reads too far crashes.

#include <cstdint>
#include <cstring>

#include "common/error.h"
#include "common/ops/cuda/work.cuh"
#include "tests/support/guarded_memory.h"
#include "tests/support/kernel_races.h"

namespace tandem::ops::on_host {
namespace {

void read_by_host(const char* op, const void* from, std::size_t bytes) {
    const std::string found = fibers::races::host_reads(from, bytes);
    if (!found.empty()) throw Error(fmt::format("{}: {}", op, found));
}

}  // namespace

Work::Work(Stream& stream, const char* op) : stream_(stream), op_(op) {}

Work::~Work() {
    for (std::byte* memory : scratch_) {
        fibers::races::end_scratch(memory, tests::guarded_bytes(memory));
        tests::guarded_free(memory);
    }
}

std::byte* Work::scratch(std::size_t bytes) {
    scratch_.push_back(tests::guarded_allocate(bytes));
    fibers::races::begin_scratch(scratch_.back(), bytes);
    return scratch_.back();
}

void Work::upload(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    fibers::races::host_writes(to, bytes);
}

void Work::download(const void* from, std::size_t bytes, std::function<void(const std::byte*)> take) {
    read_by_host(op_, from, bytes);
    if (bytes > 0) take(static_cast<const std::byte*>(from));
}

void Work::clear(void* data, std::size_t bytes) {
    if (bytes > 0) std::memset(data, 0, bytes);
    fibers::races::host_writes(data, bytes);
}

void Work::copy(const void* from, void* to, std::size_t bytes) {
    read_by_host(op_, from, bytes);
    if (bytes > 0) std::memcpy(to, from, bytes);
    fibers::races::host_writes(to, bytes);
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
