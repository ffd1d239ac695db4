// What the files of the host's instructions say to each other and to the scheduler.
#pragma once

#include <cstddef>

namespace fibers {

void begin_copies(std::size_t threads);  // of a block: none are on their way
void end_copies();                       // the running thread has ended: throws where some still are

// Throw, with the place in the kernel.
void check_multiple_of_16(const void* address, const char* what, const void* site);
void check_shared_row(const void* row, const char* what, const void* site);  // 16 bytes of shared memory

}  // namespace fibers
