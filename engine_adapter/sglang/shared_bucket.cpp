#include "engine_adapter/sglang/shared_bucket.h"

#include <unistd.h>

#include <cerrno>

#include "common/error.h"
#include "engine_adapter/sglang/payload.h"

namespace tandem::engine {
namespace {

constexpr const char* kSharedMemory = "/dev/shm";  // of shm_open

// Named as the directory, so that what a process leaves that was killed is removed with it.
std::filesystem::path name_beside(const StagedDirectory& staged) {
    enforce(std::filesystem::equivalent(staged.path().parent_path(), kSharedMemory),
            "weights are given as tensors through {}, and staged in {}: stage them there", kSharedMemory,
            staged.path().parent_path().string());
    return staged.path().string() + "t";
}

std::string pickle_of(const StagedDirectory& staged, const std::string& name,
                      const std::vector<TensorInfo>& tensors) {
    std::vector<BucketTensor> bucket;
    for (std::size_t i = 0; i < tensors.size(); ++i)
        bucket.push_back(
            {tensors[i].name, tensors[i].shape, tensors[i].dtype, staged.begin(i) - kTorchHeaderBytes});
    return flattened_bucket(TorchSharedFile{"/" + name, staged.bytes() - kTorchHeaderBytes}, bucket);
}

}  // namespace

SharedBucket::SharedBucket(const StagedDirectory& staged, const std::vector<TensorInfo>& tensors)
    : path_(name_beside(staged)), pickle_(pickle_of(staged, path_.filename(), tensors)) {
    if (::link(staged.weights().c_str(), path_.c_str()) != 0)
        throw SystemError("link " + path_.string(), errno);
}

SharedBucket::~SharedBucket() {
    ::unlink(path_.c_str());
}

}  // namespace tandem::engine
