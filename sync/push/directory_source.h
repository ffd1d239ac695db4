// The tensors of a Hugging Face directory as a trainer's: a world of one rank that holds each of them whole. They are
// read where the files are mapped; nothing is copied.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/model/safetensors.h"
#include "sync/session/said_architecture.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// A directory that was opened: it can be read whoever removes or renames its files. Any thread.
class DirectoryWeights {
  public:
    // Leaves out a head that config.json ties to the embedding, and what `only` says no to. Throws ConfigError naming
    // file and tensor; where nothing is left; where config.json and its tensors' shapes contradict each other.
    explicit DirectoryWeights(const std::string& directory,
                              const std::function<bool(const std::string& name)>& only = {});

    const std::vector<std::string>& names() const { return names_; }
    Tensor tensor(const std::string& name) const { return files_.tensor(name); }
    const SaidArchitecture& architecture() const { return architecture_; }
    std::string changed_file() const { return files_.changed_file(); }  // since it was opened; empty: none
    std::size_t bytes() const;

  private:
    model::Safetensors files_;
    SaidArchitecture architecture_;
    std::vector<std::string> names_;
};

class DirectorySource final : public WeightSource {
  public:
    DirectorySource(std::shared_ptr<const DirectoryWeights> weights,
                    std::shared_ptr<comm::Communicator> world);
    DirectorySource(const std::string& directory, std::shared_ptr<comm::Communicator> world)
        : DirectorySource(std::make_shared<DirectoryWeights>(directory), std::move(world)) {}

    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }
    const model::Architecture* architecture() const override { return weights_->architecture().get(); }
    void require_unchanged() const override;  // since the files were opened

  private:
    std::shared_ptr<const DirectoryWeights> weights_;
    std::vector<NamedTensor> tensors_;
};

}  // namespace tandem::sync
