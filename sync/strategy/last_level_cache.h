// The size of this machine's last-level cache, which decides whether staging may stay in it.
#pragma once

#include <cstddef>

namespace tandem::sync {

// One instance of the cache that CPU 0 uses, from the kernel; 32 MiB where that says nothing. (sysconf adds
// up all instances of some processors.)
std::size_t last_level_cache_bytes();

}  // namespace tandem::sync
