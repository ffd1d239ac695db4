// The place of every parameter's shard in one flat buffer: padded Shard(0) pieces (PyTorch's FSDP2 layout), a
// group's parameters side by side. The same layout serves the weights, their gradients and the optimizer's
// moments, so that each of those is one contiguous tensor for the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/tensor.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

class FlatShards {
  public:
    // Over `ranks` ranks, of which this is `rank`. groups: indices into parameters; every parameter in one
    // group.
    FlatShards(std::span<const Parameter> parameters, const std::vector<std::vector<int>>& groups, int ranks,
               int rank);

    struct Entry {
        Shape shape;                   // of the parameter's value
        std::int64_t row_numel = 0;    // elements of a row of dim 0
        std::int64_t padded_rows = 0;  // of a shard: ceil(rows / ranks)
        std::int64_t local_rows = 0;   // of this rank's shard
        std::int64_t first_row = 0;
        std::int64_t offset = 0;  // of the padded shard in the flat buffer; aligned
        std::int64_t padded_numel() const { return padded_rows * row_numel; }
    };
    struct Range {
        std::int64_t offset = 0;
        std::int64_t numel = 0;
    };

    int ranks() const { return ranks_; }
    std::int64_t numel() const { return numel_; }  // of the flat buffer
    const Entry& entry(int parameter) const { return entries_[static_cast<std::size_t>(parameter)]; }
    const Range& group_range(int group) const { return ranges_[static_cast<std::size_t>(group)]; }

    // Views into a flat buffer: the padded shard [padded_numel], and what this rank really holds [local_rows,
    // …].
    Tensor padded(const Tensor& flat, int parameter) const;
    Tensor local(const Tensor& flat, int parameter) const;
    // What is real of a padded shard that lies anywhere.
    Tensor without_padding(const Tensor& padded, int parameter) const;

    // Views into a group's full buffer of ranks × group_range(group).numel elements, where the ranks' padded
    // shards of a parameter follow each other: with the padding rows [ranks × padded_numel], and the
    // parameter itself.
    Tensor full_padded(const Tensor& full, int group, int parameter) const;
    Tensor full(const Tensor& full, int group, int parameter) const;

  private:
    int ranks_;
    std::int64_t numel_ = 0;
    std::vector<Entry> entries_;
    std::vector<Range> ranges_;
};

}  // namespace tandem::trainer
