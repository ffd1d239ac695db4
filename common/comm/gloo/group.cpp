#include "common/comm/gloo/group.h"

#include <algorithm>

#include "common/error.h"

namespace tandem::comm::gloo {
namespace {

// FNV-1a. Two groups of one process with equal hashes are as likely as 1 in 2^56 a pair.
std::uint64_t hash(std::string_view bytes, std::uint64_t seed = 0xcbf29ce484222325) {
    for (const char c : bytes) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return seed;
}

}  // namespace

Group::Group(std::shared_ptr<Mesh> mesh, std::string name, std::vector<int> ranks)
    : mesh_(std::move(mesh)), name_(std::move(name)), ranks_(std::move(ranks)) {
    const auto me = std::find(ranks_.begin(), ranks_.end(), mesh_->rank());
    require(me != ranks_.end(), "group '{}' without rank {}", name_, mesh_->rank());
    index_ = static_cast<int>(me - ranks_.begin());
    std::string identity = fmt::format("{}\n{}", name_, mesh_->count_split(name_, ranks_));
    for (const int rank : ranks_) identity += fmt::format(",{}", rank);
    slots_ = (hash(identity) | 0x100) & ~std::uint64_t{0xff};
}

std::string Group::phase(std::string_view what) const {
    return fmt::format("{} on '{}'", what, name_);
}

std::string Group::rank_name(int member) const {
    return Mesh::rank_name(ranks_[static_cast<std::size_t>(member)]);
}

Transfer Group::send(ConstSpan memory, int member, Lane lane, std::string_view phase) const {
    return mesh_->send(memory, ranks_[static_cast<std::size_t>(member)],
                       slots_ + static_cast<std::uint64_t>(lane), phase);
}

Transfer Group::recv(Span memory, int member, Lane lane, std::string_view phase) const {
    return mesh_->recv(memory, ranks_[static_cast<std::size_t>(member)],
                       slots_ + static_cast<std::uint64_t>(lane), phase);
}

}  // namespace tandem::comm::gloo
