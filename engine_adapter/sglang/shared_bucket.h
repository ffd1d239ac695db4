// The weights of a staged directory under a name that shm_open knows, as the one bucket of an update from tensors: the
// same memory, nothing is copied. PyTorch keeps its count of who has the file open where its first bytes are, so that
// the directory is none that can be loaded any more once somebody has opened the bucket.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/hf_directory/staged_directory.h"

namespace tandem::engine {

class SharedBucket {
  public:
    // Throws BadInput: the directory does not lie where shm_open's files do; SystemError.
    SharedBucket(const StagedDirectory& staged, const std::vector<TensorInfo>& tensors);
    ~SharedBucket();  // removes the name
    SharedBucket(const SharedBucket&) = delete;
    SharedBucket& operator=(const SharedBucket&) = delete;

    const std::filesystem::path& path() const { return path_; }
    const std::string& pickle() const { return pickle_; }  // payload.h

  private:
    std::filesystem::path path_;
    std::string pickle_;
};

}  // namespace tandem::engine
