#include "sync/push/options.h"

#include <array>

#include "common/error.h"

namespace tandem::sync {

constexpr std::array<std::string_view, 4> kModeNames{"gather", "direct", "alias", "delta"};

std::string_view mode_name(Mode mode) {
    return kModeNames[static_cast<std::size_t>(mode)];
}

Mode mode_from_name(std::string_view name) {
    for (std::size_t i = 0; i < kModeNames.size(); ++i) {
        if (name == kModeNames[i]) return static_cast<Mode>(i);
    }
    throw InvalidArgument(fmt::format("no mode '{}'; there are gather, direct, alias, delta", name));
}

}  // namespace tandem::sync
