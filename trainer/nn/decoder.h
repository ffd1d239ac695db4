// The model, or some stages of it: embedding, layers, final norm, head; of each, this rank's part of the tp axis's cut. Owns the
// parameters' records (not their memory) and says which of them form a group.
#pragma once

#include <memory>
#include <vector>

#include "common/model/model_config.h"
#include "trainer/nn/decoder_parameters.h"
#include "trainer/nn/decoder_stage.h"

namespace tandem::trainer {

struct DecoderOptions {
    std::int64_t logits_chunk_rows = 1024;
    Checkpointing checkpointing = Checkpointing::none;
    bool value_head = false;
    bool loss_parallel = true;            // see cut_vocabulary.h
    std::vector<DecoderPart> parts = {};  // ascending; empty: all of the model as one
};

class Decoder {
  public:
    // `tensor` must outlive this. Throws InvalidArgument where its size does not fit the model (tensor_cut.h).
    Decoder(const model::ModelConfig& config, const DecoderOptions& options, const TensorParallel& tensor);

    std::vector<Parameter>& parameters() { return parameters_.all; }
    const std::vector<Parameter>& parameters() const { return parameters_.all; }
    const std::vector<std::vector<int>>& groups() const { return parameters_.groups; }

    std::size_t stages() const { return stages_.size(); }
    const DecoderStage& stage(std::size_t index = 0) const { return stages_[index]; }  // of options.parts

  private:
    DecoderParameters parameters_;
    std::unique_ptr<Embedding> embedding_;  // null: in no stage of these
    std::unique_ptr<LmHead> head_;          // likewise
    std::vector<DecoderStage> stages_;
};

}  // namespace tandem::trainer
