// The secret that XXH3 has by default.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "common/ops/shared/xxh3.h"

namespace tandem::ops::shared {

Xxh3Secret xxh3_secret() {
    Xxh3Secret result;
    static_assert(sizeof(XXH3_kSecret) == sizeof result.bytes);
    std::memcpy(result.bytes, XXH3_kSecret, sizeof result.bytes);
    return result;
}

}  // namespace tandem::ops::shared
