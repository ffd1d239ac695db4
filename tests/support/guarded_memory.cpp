#include "tests/support/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#include "common/error.h"

namespace tandem::tests {
namespace {

struct Mapping {
    void* start;
    std::size_t bytes;
};

std::mutex mutex;
std::map<std::byte*, Mapping> mappings;

class GuardedPool : public MemoryPool {
  public:
    Device device() const override { return {}; }
    std::byte* allocate(std::size_t bytes) override { return guarded_allocate(bytes); }
    void release(std::byte* data, std::size_t) noexcept override { guarded_free(data); }
};

}  // namespace

std::byte* guarded_allocate(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t rounded = (bytes + 15) / 16 * 16;
    const std::size_t usable = (rounded + page - 1) / page * page;
    void* const start =
        mmap(nullptr, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw Error("guarded_allocate: mmap failed");
    auto* const first = static_cast<std::byte*>(start);
    std::memset(first, 0xff, usable);
    if (mprotect(first + usable, page, PROT_NONE) != 0) throw Error("guarded_allocate: mprotect failed");
    std::byte* const result = first + usable - rounded;
    const std::lock_guard lock(mutex);
    mappings[result] = {start, usable + page};
    return result;
}

std::size_t guarded_bytes(std::byte* memory) {
    const std::lock_guard lock(mutex);
    const Mapping& mapping = mappings.at(memory);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return static_cast<std::size_t>(static_cast<std::byte*>(mapping.start) + mapping.bytes - page - memory);
}

void guarded_free(std::byte* memory) noexcept {
    const std::lock_guard lock(mutex);
    const auto found = mappings.find(memory);
    if (found == mappings.end()) return;
    munmap(found->second.start, found->second.bytes);
    mappings.erase(found);
}

MemoryPool& guarded_pool() {
    static GuardedPool pool;
    return pool;
}

}  // namespace tandem::tests
