// The engine's matrices in the layout that matmuls read fastest: copies, packed again on the first use after
// the weights have changed. They cost as much memory as the matrices themselves (tag "engine.packed").
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/ops/packed_weight.h"
#include "engine_adapter/embedded/weights.h"

namespace tandem::engine {

class PackedLayer {
  public:
    const ops::PackedWeight& operator[](model::Role role) const {
        return weights_[static_cast<std::size_t>(role)];
    }
    ops::PackedWeight& operator[](model::Role role) { return weights_[static_cast<std::size_t>(role)]; }

  private:
    std::array<ops::PackedWeight, model::kRoles> weights_;
};

// Used only by the thread that runs the decoder. Reads the weights while a call runs.
class PackedWeights {
  public:
    // pack: whether copies are made; else matmuls read the weights themselves.
    PackedWeights(const ModelWeights& weights, bool pack);

    // Packed from the weights as they are now; valid until the next call of refresh or release.
    const PackedLayer& layer(std::size_t index) const { return layers_[index]; }
    const ops::PackedWeight& head() const { return head_; }
    // Packs again the copies that are older than the weights.
    void refresh();
    // What packing the weights as they are now took; 0: the copies are older.
    double packed_ms() const { return contents_ == weights_.contents() ? packed_ms_ : 0; }
    // Releases the copies' memory to its pool; the next refresh allocates it again.
    void release();

  private:
    const ModelWeights& weights_;
    const bool pack_;
    std::vector<PackedLayer> layers_;
    ops::PackedWeight head_;
    std::uint64_t contents_ = 0;  // of the weights that were packed; 0: none
    double packed_ms_ = 0;
};

}  // namespace tandem::engine
