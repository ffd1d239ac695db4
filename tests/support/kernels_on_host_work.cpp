// common/ops/cuda/work.h where kernels run on the host: everything happens at once. Device memory ends at a
// page that nobody may touch, so that a kernel that reads too far crashes.

#include <cstdint>
#include <cstring>

#include "common/error.h"
#include "common/ops/cuda/work.cuh"
#include "tests/support/guarded_memory.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host_work.h"

namespace tandem::ops::on_host {
namespace {

void read_by_host(const char* op, const void* from, std::size_t bytes) {
    const std::string found = fibers::races::host_reads(from, bytes);
    if (!found.empty()) throw Error(fmt::format("{}: {}", op, found));
}

std::uint64_t uploaded = 0;

}  // namespace

std::uint64_t uploads() {
    return uploaded;
}

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
    if (bytes > 0) ++uploaded;
    if (bytes > 0) std::memcpy(to, from, bytes);
    fibers::races::host_writes(to, bytes);
}

// Not scratch to the initcheck: the host writes all of a table, and a stream may keep it to the program's
// end.
std::byte* Work::allocate(std::size_t bytes) {
    return tests::guarded_allocate(bytes);
}

const std::byte* Work::kept(std::span<const std::byte> table) {
    if (table.empty()) return nullptr;
    tables_.push_back(KeptTables::of(stream_).find(table, [&] {
        std::byte* const memory = allocate(table.size());
        upload(table.data(), memory, table.size());
        return KeptTables::Memory(
            memory, [](const std::byte* done) { tests::guarded_free(const_cast<std::byte*>(done)); });
    }));
    return tables_.back().get();
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
