// Which tensors of a model each stage of a pipeline has, told from the tensors alone: a shapes file may know no more.
#pragma once

#include <vector>

#include "common/sharding/pipeline_stages.h"

namespace tandem::sync {

class Stages {
  public:
    // One for each rank of pp. Throws InvalidArgument: too many for the layers, naming what fits, or tensors whose names have
    // no layers or not all up to the last.
    Stages(const std::vector<model::ParameterSpec>& model, int pp);

    bool holds(int stage, const model::ParameterSpec& tensor) const {
        return last() == 0 || parts_[static_cast<std::size_t>(stage)].holds(tensor, tied_);
    }
    int last() const { return static_cast<int>(parts_.size()) - 1; }
    // Whether the first stage and the last one, which is another, both have it.
    bool shares(const model::ParameterSpec& tensor) const {
        return last() > 0 && holds(0, tensor) && holds(last(), tensor);
    }

  private:
    std::vector<DecoderPart> parts_;  // [stage]
    bool tied_;
};

}  // namespace tandem::sync
