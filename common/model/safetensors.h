// Reads and writes safetensors files and Hugging Face directories of them (mmap in, one pass out).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/tensor.h"

namespace tandem::model {

// A Hugging Face directory's tensors: model.safetensors, or the files that model.safetensors.index.json
// names. Opening checks every header: length inside the file, known dtypes, no name twice, offsets in order,
// inside, not overlapping, without holes, and equal to what shape and dtype need; and that index and files
// agree. Throws ConfigError naming file and tensor. Files are mapped: only what is read takes memory.
class Safetensors {
  public:
    static Safetensors open(const std::string& directory);
    static Safetensors open_file(const std::string& file);  // one file alone
    ~Safetensors();
    Safetensors(Safetensors&&) noexcept;
    Safetensors& operator=(Safetensors&&) noexcept;

    const std::string& directory() const;
    std::vector<std::string> names() const;
    bool contains(const std::string& name) const;
    // These throw ConfigError when the tensor is missing.
    std::string file(const std::string& name) const;  // that holds it
    DType dtype(const std::string& name) const;
    const Shape& shape(const std::string& name) const;
    // The tensor, or rows [first, first + count) of its dim 0. They borrow the mapping (or are a copy, where
    // a file's header leaves the data unaligned); writing to them does not reach the file.
    Tensor tensor(const std::string& name) const;
    Tensor rows(const std::string& name, std::int64_t first, std::int64_t count) const;
    // A file that was written since it was opened, so that a tensor may hold parts of two, or of which something could not be
    // read (mapped_files.h); empty: none. A file that another one replaced under its name stays what it was.
    std::string changed_file() const;
    // Behind the last read of whoever takes the tensors. Throws Error naming that file.
    void require_unchanged() const;
    // Gives back the memory that reading the tensor took; what was written to it is forgotten.
    void release(const std::string& name) const;

  private:
    struct Impl;
    explicit Safetensors(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Writes `file` through a temporary file and a rename.
void write_safetensors(const std::string& file, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace tandem::model
