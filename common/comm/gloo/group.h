// A group of ranks over the mesh: its members, and the slots that keep its messages apart from other
// groups'.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/gloo/mesh.h"

namespace tandem::comm::gloo {

// The kinds of messages of a group. Each keeps its own order between two members.
enum class Lane : std::uint8_t { post, data, p2p_size, p2p_data };

class Group {
  public:
    // Members agree by their equal lists: no message is needed. `mesh` is this rank's.
    Group(std::shared_ptr<Mesh> mesh, std::string name, std::vector<int> ranks);

    int index() const { return index_; }
    int size() const { return static_cast<int>(ranks_.size()); }
    const std::string& name() const { return name_; }
    const std::vector<int>& ranks() const { return ranks_; }
    Mesh& mesh() const { return *mesh_; }
    const std::shared_ptr<Mesh>& shared_mesh() const { return mesh_; }

    std::string phase(std::string_view what) const;  // "all_gather on 'dp'"
    std::string rank_name(int member) const;
    // Members are group indices.
    Transfer send(ConstSpan memory, int member, Lane lane, std::string_view phase) const;
    Transfer recv(Span memory, int member, Lane lane, std::string_view phase) const;

  private:
    std::shared_ptr<Mesh> mesh_;
    std::string name_;
    std::vector<int> ranks_;
    int index_ = 0;
    std::uint64_t slots_ = 0;
};

// The transfers of one step of an operation; none outlives it.
class Batch {
  public:
    Batch(const Group& group, std::string_view what, Lane lane, Deadline deadline)
        : group_(group), phase_(group.phase(what)), lane_(lane), deadline_(deadline) {}
    // Nothing to send or to receive is no message: both sides know the size.
    void send(ConstSpan memory, int member) {
        if (memory.bytes > 0) transfers_.push_back(group_.send(memory, member, lane_, phase_));
    }
    void recv(Span memory, int member) {
        if (memory.bytes > 0) transfers_.push_back(group_.recv(memory, member, lane_, phase_));
    }
    void wait() {
        group_.mesh().wait(transfers_, phase_, deadline_);
        transfers_.clear();
    }

  private:
    const Group& group_;
    std::string phase_;
    Lane lane_;
    Deadline deadline_;
    std::vector<Transfer> transfers_;
};

}  // namespace tandem::comm::gloo
