// Quantises this rank's shards on their way into the engines: first the scales, on which all ranks agree,
// then, piece by piece as the pieces are copied, the values.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/device/memory.h"
#include "sync/codec/scales.h"
#include "sync/plan/reshard.h"
#include "sync/weight_source.h"

namespace tandem::sync {

class Quantizer {
  public:
    // `source` is borrowed; `local[t]`: index in it of the plan's source tensor t, -1: not on this rank.
    Quantizer(comm::Communicator& world, const WeightSource& source,
              const std::vector<QuantizedTensor>& tensors, const std::vector<int>& local);
    bool empty() const { return weights_.empty(); }

    // Before each push: the largest magnitudes of this rank's shards. Where replicas hold a shard, each looks
    // at a part of it. Throws InvalidArgument naming the tensor that holds NaN or infinity, or that has
    // changed its layout.
    void scan();
    // Then, collective over the world also where scan failed: magnitudes → scales, equal on every rank.
    void agree_on_scales(comm::Communicator& world);

    // For a source tensor of the plan: whether it is quantised here; its scales when it is scales, else null.
    bool quantizes(int source_tensor) const { return weight_of(source_tensor) != nullptr; }
    const Tensor* scales(int source_tensor) const;
    DType held(int source_tensor) const { return weight_of(source_tensor)->info.held; }  // by the trainer

    // The elements of a move of a quantised tensor, rows to_stride bytes apart. Returns the checksum of the
    // bytes in row order.
    ops::Checksum copy(const Move& move, std::byte* to, std::size_t to_stride) const;

  private:
    struct Weight {
        QuantizedTensor info;
        int local = -1;                           // in the source
        LocalLayout layout;                       // of the shard here
        std::int64_t columns = 0;                 // of the shard
        std::int64_t first_row = 0, end_row = 0;  // of the shard, that scan looks at
        Tensor scales;                            // in table_
    };
    enum class Role : std::uint8_t { none, values, scales };
    struct Entry {
        Role role = Role::none;
        std::size_t weight = 0;
    };

    const Weight* weight_of(int source_tensor) const;
    const Tensor& shard(const Weight& weight) const;
    std::span<float> values_of(const Weight& weight) const { return weight.scales.values<float>(); }

    const WeightSource& source_;
    Buffer table_;  // of all tensors, one behind the other
    std::vector<Weight> weights_;
    std::vector<Entry> entries_;  // [the plan's source tensor]
};

}  // namespace tandem::sync
