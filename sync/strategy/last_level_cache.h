// The size of this machine's last-level cache: what decides whether staging may live in it.
#pragma once

#include <cstddef>

namespace tandem::sync {

// Of one instance of the cache that CPU 0 uses, as the kernel tells; 32 MiB where it does not. (sysconf
// counts all instances of some processors together.)
std::size_t last_level_cache_bytes();

}  // namespace tandem::sync
