#include "common/device/tier.h"

#include "common/device/memory_stats.h"

namespace tandem {

void Tier::write(Stream& stream, std::uint64_t offset, ConstSpan from) {
    stream.enqueue([this, offset, from] { write(offset, from); });
}

void Tier::read(Stream& stream, std::uint64_t offset, Span to) {
    stream.enqueue([this, offset, to] { read(offset, to); });
}

ReleasedPages::~ReleasedPages() {
    detail::count_allocation(tag_, range_.bytes);
}

}  // namespace tandem
