// The engine's matrices in the layout that matmuls read fastest: copies, packed again on the first use after
// the weights have changed. They cost as much memory as the matrices themselves (tag "engine.packed").
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/ops/batched_copy.h"
#include "common/ops/packed_weight.h"
#include "engine_adapter/embedded/weights.h"

namespace tandem::engine {

// Columns of a matrix: what one rank of a trainer's tp has of o and down.
struct WeightPart {
    std::int64_t first_column = 0;
    Tensor columns;  // a copy, where they are not all
    ops::PackedWeight weight;
};

// A copy of `from`'s columns from first_column on, as many as `to` has.
ops::CopyItem copy_of_columns(const Tensor& from, std::int64_t first_column, const Tensor& to);

class PackedLayer {
  public:
    const std::vector<WeightPart>& operator[](model::Role role) const {
        return weights_[static_cast<std::size_t>(role)];
    }
    std::vector<WeightPart>& operator[](model::Role role) { return weights_[static_cast<std::size_t>(role)]; }

  private:
    std::array<std::vector<WeightPart>, model::kRoles> weights_;
};

// Used only by the thread that runs the decoder. Reads the weights while a call runs.
class PackedWeights {
  public:
    // pack: whether copies are made; else matmuls read the weights themselves. sum_parts: o and down in as many parts of their
    // columns, cut as DTensor's Shard cuts; more than one take a copy in any case. `stream`: of the weights' device.
    PackedWeights(const ModelWeights& weights, Stream& stream, bool pack, int sum_parts);

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
    struct Copy {
        ops::PackedWeight* to;
        Tensor from;
    };
    using Copies = std::vector<Copy>;
    void take_parts(std::vector<WeightPart>& to, const Tensor& from, Copies& copies);
    void pack(const Copies& copies);

    const ModelWeights& weights_;
    Stream& stream_;
    const bool pack_;
    const int sum_parts_;
    std::vector<PackedLayer> layers_;
    ops::PackedWeight head_;
    Buffer memory_;               // of the copies
    std::uint64_t contents_ = 0;  // of the weights that were packed; 0: none
    double packed_ms_ = 0;
};

}  // namespace tandem::engine
