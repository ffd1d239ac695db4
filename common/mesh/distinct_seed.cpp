#include "common/mesh/distinct_seed.h"

namespace tandem {

std::uint64_t distinct_seed(std::uint64_t seed, const DeviceMesh& mesh,
                            const std::vector<std::string>& axes) {
    std::uint64_t stride = 1;
    for (const std::string& axis : axes) {
        seed += static_cast<std::uint64_t>(mesh.coordinate(axis)) * stride;
        stride *= static_cast<std::uint64_t>(mesh.size(axis));
    }
    return seed;
}

}  // namespace tandem
