#include "common/device/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "common/align.h"

namespace tandem {
namespace {

// MADV_POPULATE_READ and MADV_COLLAPSE, of Linux 5.14 and 6.1: a C library's headers may lack them.
constexpr int kPopulateRead = 22, kCollapse = 25;

}  // namespace

void hold_in_huge_pages(Span fresh) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(fresh.data);
    for (std::uintptr_t at = round_up(begin, kHugePage); at + kHugePage <= begin + fresh.bytes;
         at += kHugePage) {
        // Of a range without any small page no huge one is made. The first may be a neighbour's who is writing to it: the
        // system touches it, not this thread.
        auto* const page = reinterpret_cast<void*>(at);
        if (::madvise(page, 1, kPopulateRead) != 0 || ::madvise(page, kHugePage, kCollapse) != 0) return;
    }
}

}  // namespace tandem
