#include "common/device/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "common/align.h"

namespace tandem {

void hold_in_huge_pages(Span fresh) noexcept {
#ifdef MADV_COLLAPSE
    constexpr int kCollapse = MADV_COLLAPSE;
#else
    constexpr int kCollapse = 25;  // of linux/mman.h, which older headers lack
#endif
    const auto begin = reinterpret_cast<std::uintptr_t>(fresh.data);
    for (std::uintptr_t at = round_up(begin, kHugePage); at + kHugePage <= begin + fresh.bytes;
         at += kHugePage) {
        auto* const page = reinterpret_cast<std::byte*>(at);
        // The call makes a huge page of small ones, at least one: of the others it asks nothing.
        static_cast<void>(*const_cast<const volatile std::byte*>(page));
        if (::madvise(page, kHugePage, kCollapse) != 0) return;
    }
}

}  // namespace tandem
