#include "trainer/fsdp/reduce_sums.h"

#include <algorithm>
#include <vector>

namespace tandem::trainer {

namespace {

// Every rank's values, in rank order.
std::vector<double> gather(std::span<const double> mine, comm::Communicator& group) {
    std::vector<double> all(mine.size() * static_cast<std::size_t>(group.size()));
    const auto sent = std::as_bytes(mine);
    const auto received = std::as_writable_bytes(std::span(all));
    group.all_gather(ConstSpan(sent.data(), sent.size()), Span{received.data(), received.size()});
    return all;
}

}  // namespace

void reduce_sums(std::span<double> values, comm::Communicator& group) {
    if (group.size() == 1) return;
    const std::vector<double> all = gather(values, group);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 0;
        for (std::size_t at = i; at < all.size(); at += values.size()) values[i] += all[at];
    }
}

double max_over(double value, comm::Communicator& group) {
    if (group.size() == 1) return value;
    const std::vector<double> all = gather(std::span(&value, 1), group);
    return *std::max_element(all.begin(), all.end());
}

}  // namespace tandem::trainer
