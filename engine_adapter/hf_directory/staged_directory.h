// A Hugging Face directory in shared memory, for engines that load weights from a directory: model.safetensors, laid
// out before a byte of it is there, and the small JSON files of the model's own directory. An OwnedFolder: what a process
// left that was killed can be found and removed, and what neighbours put beside it is not believed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "common/owned_folder.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

// Where staged directories are made: engines must see the same file system there.
inline constexpr const char* kStagingRoot = "/dev/shm";

class StagedDirectory {
  public:
    // Takes the memory of all tensors at once. `model`: the directory whose JSON files come along. Throws SystemError;
    // Error where the memory does not suffice.
    StagedDirectory(const std::filesystem::path& root, const std::filesystem::path& model,
                    const std::vector<TensorInfo>& tensors, std::int64_t version);
    ~StagedDirectory();  // removes it
    StagedDirectory(const StagedDirectory&) = delete;
    StagedDirectory& operator=(const StagedDirectory&) = delete;

    const std::filesystem::path& path() const { return folder_.path(); }
    std::filesystem::path weights() const;          // the file
    Span memory(std::size_t tensor) const;          // of a tensor, in the file
    std::uint64_t begin(std::size_t tensor) const;  // in the file
    std::size_t bytes() const { return mapped_.bytes; }

    // Leaves a text beside the weights, which outlives a process that is killed: see sweep_staged_directories. From any
    // thread; one for each text.
    void note(const std::string& text) const;

  private:
    void map_weights(const std::string& head, std::size_t bytes);

    OwnedFolder folder_;
    Span mapped_;
    std::vector<Span> tensors_;
};

// Whether that is, or was, one: by its name.
bool is_staged_directory(const std::filesystem::path& path);

// Removes what processes of this user's that are gone left in `root`. A directory with notes loses its weights, and stays
// until all of them were forgotten: returns them.
struct LeftNote {
    std::shared_ptr<LeftFolder> folder;
    std::string name, text;
    void forget() const;
};
std::vector<LeftNote> sweep_staged_directories(const std::filesystem::path& root = kStagingRoot);

// Sweeps. Whether a pusher that was killed left the server of this name paused; its notes go.
bool left_paused(const std::string& name, const std::filesystem::path& root);

}  // namespace tandem::engine
