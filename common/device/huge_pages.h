// Huge pages for memory that processes share. Where it lies in them, what streams through it translates fewer addresses,
// and the processor's own prefetches do not end after 4 KiB; first touch takes a tenth of the time.
#pragma once

#include <cstddef>

#include "common/device/device.h"

namespace tandem {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Touches the whole huge pages of `fresh`, which is shared memory that nothing was written to, and has the system hold
// them as such (Linux 6.1). A hint: where it cannot be, the pages are small ones, touched first when they are used.
void hold_in_huge_pages(Span fresh) noexcept;

}  // namespace tandem
