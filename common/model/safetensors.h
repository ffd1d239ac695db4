// Reads and writes safetensors files and Hugging Face directories of them (mmap in, one pass out).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/tensor.h"

namespace tandem::model {

// A Hugging Face directory's tensors: model.safetensors, or the files that model.safetensors.index.json
// names. Opening checks every header: length inside the file, known dtypes, offsets in order, inside, not
// overlapping, and equal to what shape and dtype need. Throws ConfigError naming file and tensor.
class Safetensors {
  public:
    static Safetensors open(const std::string& directory);
    ~Safetensors();
    Safetensors(Safetensors&&) noexcept;
    Safetensors& operator=(Safetensors&&) noexcept;

    std::vector<std::string> names() const;
    bool contains(const std::string& name) const;
    Tensor tensor(const std::string& name) const;  // borrows the mapping; throws ConfigError when missing

  private:
    struct Impl;
    explicit Safetensors(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Writes DIR/model.safetensors through a temporary file and a rename.
void write_safetensors(const std::string& file, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace tandem::model
