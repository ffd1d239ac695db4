#include "sync/strategy/bucket_sizes.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tandem::sync {

std::size_t last_level_cache_bytes() {
    for (const char* index : {"index3", "index2"}) {
        std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/") + index + "/size");
        std::size_t size = 0;
        char unit = ' ';
        if (!(file >> size >> unit) || size == 0) continue;
        return size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
    }
    return std::size_t{32} << 20;
}

// Staging that stays in the last-level cache makes the engine's read and the next fill cheap, so all slots
// together get three eighths of it. Smaller buckets than a mebibyte cost more in handing over than they save.
std::size_t default_bucket_bytes() {
    return std::clamp(last_level_cache_bytes() / 8, std::size_t{1} << 20, std::size_t{64} << 20);
}

std::size_t slot_bytes(std::size_t used, std::size_t asked) {
    constexpr std::size_t kPageBytes = 4096;
    return std::min((std::max<std::size_t>(used, 1) + kPageBytes - 1) / kPageBytes * kPageBytes, asked);
}

std::size_t staged_piece_bytes(std::size_t bucket_bytes) {
    return std::clamp(bucket_bytes / 8, std::size_t{64} << 10, kLargestPieceBytes);
}

std::size_t direct_piece_bytes(std::size_t bucket_bytes) {
    return std::clamp(bucket_bytes, std::size_t{64}, kLargestPieceBytes);
}

}  // namespace tandem::sync
