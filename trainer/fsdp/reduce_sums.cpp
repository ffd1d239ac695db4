#include "trainer/fsdp/reduce_sums.h"

#include <vector>

namespace tandem::trainer {

void reduce_sums(std::span<double> values, comm::Communicator& group) {
    if (group.size() == 1) return;
    const std::vector<double> mine(values.begin(), values.end());
    std::vector<double> all(values.size() * static_cast<std::size_t>(group.size()));
    const auto sent = std::as_bytes(std::span(mine));
    const auto received = std::as_writable_bytes(std::span(all));
    group.all_gather(ConstSpan(sent.data(), sent.size()), Span{received.data(), received.size()});
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 0;
        for (std::size_t at = i; at < all.size(); at += values.size()) values[i] += all[at];
    }
}

}  // namespace tandem::trainer
