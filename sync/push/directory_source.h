// The tensors of a Hugging Face directory as a trainer's: a world of one rank that holds each of them whole. They are
// read where the files are mapped; nothing is copied.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/model/safetensors.h"
#include "sync/session/said_architecture.h"
#include "sync/weight_source.h"

namespace tandem::sync {

class DirectorySource final : public WeightSource {
  public:
    // Leaves out a head that config.json ties to the embedding, and what `only` says no to. Throws ConfigError naming
    // file and tensor; where nothing is left; where config.json and its tensors' shapes contradict each other.
    DirectorySource(const std::string& directory, std::shared_ptr<comm::Communicator> world,
                    const std::function<bool(const std::string& name)>& only = {});
    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }
    const model::Architecture* architecture() const override { return architecture_.get(); }
    void require_unchanged() const override;  // since the files were opened
    std::size_t bytes() const;

  private:
    model::Safetensors files_;
    SaidArchitecture architecture_;
    std::vector<NamedTensor> tensors_;
};

}  // namespace tandem::sync
