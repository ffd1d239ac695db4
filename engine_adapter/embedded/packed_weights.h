// The engine's matrices in the layout that its products read fastest: copies, made anew on the first use
// after the weights have changed. They cost as much memory as the matrices themselves (tag "engine.packed").
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/packed_weight.h"
#include "engine_adapter/embedded/weights.h"

namespace tandem::engine {

struct PackedLayer {
    ops::PackedWeight q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj;
};

// Of the thread that runs the decoder. Reads the weights while a call runs.
class PackedWeights {
  public:
    // pack: whether copies are made; else products read the weights themselves.
    PackedWeights(const ModelWeights& weights, bool pack);

    // Packed from the weights as they are now; valid until the next call of refresh or release.
    const PackedLayer& layer(std::size_t index) const { return layers_[index]; }
    const ops::PackedWeight& head() const { return head_; }
    // Packs what is older than the weights.
    void refresh();
    // Gives the copies' memory back to its pool; the next refresh takes it again.
    void release();

  private:
    const ModelWeights& weights_;
    const bool pack_;
    std::vector<PackedLayer> layers_;
    ops::PackedWeight head_;
    std::uint64_t contents_ = 0;  // of the weights that were packed; 0: none
};

}  // namespace tandem::engine
