// A pipeline of a model: which layers each stage has, on which rank it is, and the lists of a batch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/sharding/pipeline_stages.h"
#include "trainer/pipeline/options.h"

namespace tandem::pipeline {

class Plan {
  public:
    // Of `layers` layers over `ranks` ranks. Throws BadInput: stages that the layers, the ranks or the schedule do not admit, or
    // lists that cannot run.
    Plan(Options options, int ranks, int layers);

    int ranks() const { return ranks_; }
    int stages() const { return static_cast<int>(rank_of_stage_.size()); }
    int stages_per_rank() const { return stages() / ranks_; }
    const std::vector<int>& rank_of_stage() const { return rank_of_stage_; }
    const std::vector<DecoderPart>& parts() const { return parts_; }  // [stage]
    std::vector<int> stages_of(int rank) const;                       // ascending
    std::vector<DecoderPart> parts_of(int rank) const;

    // How many micro-batches a batch has that needs at least so many. Throws BadInput where the lists have fewer.
    int microbatches(int needed) const;
    // Compute actions of so many micro-batches, and the same with sends and receives. Throws BadInput where they are not admitted.
    Schedule compute(int microbatches) const;
    Schedule lists(int microbatches) const;
    // Forwards alone, with sends and receives, of any number: rounds of as many micro-batches as ranks.
    Schedule forward_lists(int microbatches) const;

  private:
    Options options_;
    int ranks_;
    std::vector<int> rank_of_stage_;
    std::vector<DecoderPart> parts_;
};

}  // namespace tandem::pipeline
