#include "sync/strategy/last_level_cache.h"

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

}  // namespace tandem::sync
