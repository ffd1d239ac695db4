#include "common/model/mapped_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>

namespace tandem::model {
namespace {

struct Mapped {
    std::atomic<std::uintptr_t> begin{0};  // 0: free
    std::atomic<std::uintptr_t> end{0};
    std::atomic<bool> zeros{false};
};
std::array<Mapped, 1024> mappings;  // read by a signal handler: no lock, no allocation
std::uintptr_t page_bytes = 4096;

std::uintptr_t address(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data);
}

Mapped* find(Span mapped) {
    for (Mapped& one : mappings) {
        if (one.begin == address(mapped.data)) return &one;
    }
    return nullptr;
}

void give_zeros_at(int, siginfo_t* info, void*) {
    const std::uintptr_t fault = address(info->si_addr);
    for (Mapped& one : mappings) {
        if (fault < one.begin || fault >= one.end) continue;
        one.zeros = true;
        void* const page = reinterpret_cast<void*>(fault / page_bytes * page_bytes);
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (::mmap(page, page_bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED) return;
    }
    std::signal(SIGBUS, SIG_DFL);  // raised again by the same read
}

}  // namespace

void read_zeros_of_truncated_files() {
    page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = give_zeros_at;
    action.sa_flags = SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
}

void remember_mapping(Span mapped) {
    for (Mapped& one : mappings) {
        std::uintptr_t unused = 0;
        if (!one.begin.compare_exchange_strong(unused, address(mapped.data))) continue;
        one.zeros = false;
        one.end = address(mapped.data) + mapped.bytes;
        return;
    }
}

void forget_mapping(Span mapped) {
    Mapped* const found = find(mapped);
    if (found == nullptr) return;
    found->end = 0;
    found->begin = 0;
}

bool gave_zeros(Span mapped) {
    const Mapped* const found = find(mapped);
    return found != nullptr && found->zeros;
}

}  // namespace tandem::model
