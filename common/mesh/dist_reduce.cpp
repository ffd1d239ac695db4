#include "common/mesh/dist_reduce.h"

#include <cmath>
#include <vector>

#include "common/error.h"

namespace tandem {
namespace {

// Every rank's values, in rank order.
std::vector<double> gather(std::span<const double> mine, comm::Communicator& group) {
    std::vector<double> all(mine.size() * static_cast<std::size_t>(group.size()));
    const auto sent = std::as_bytes(mine);
    const auto received = std::as_writable_bytes(std::span(all));
    group.all_gather(ConstSpan(sent.data(), sent.size()), Span{received.data(), received.size()});
    return all;
}

comm::Communicator& line(const DeviceMesh& mesh) {
    require(mesh.ndim() == 1, "a reduction over a mesh of {} axes: it needs one; flatten them", mesh.ndim());
    return mesh.communicator(0);
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
    double most = all[0];
    for (const double one : all) most = std::isnan(one) || one > most ? one : most;
    return most;
}

double dist_sum(double value, const std::optional<DeviceMesh>& mesh) {
    if (mesh) reduce_sums({&value, 1}, line(*mesh));
    return value;
}

double dist_mean(double value, const std::optional<DeviceMesh>& mesh) {
    return mesh ? dist_sum(value, mesh) / mesh->size() : value;
}

double dist_max(double value, const std::optional<DeviceMesh>& mesh) {
    return mesh ? max_over(value, line(*mesh)) : value;
}

}  // namespace tandem
