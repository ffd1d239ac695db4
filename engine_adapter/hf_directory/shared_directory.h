// One staged directory for several servers of this host that a push gives the same tensors: the first that asks for it
// fills it, the others wait until it is whole. Thread-safe.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/hf_directory/staged_directory.h"

namespace tandem::engine {

// The checksums of each bucket as the trainer announced them.
using Announced = std::map<int, std::vector<ops::Checksum>>;

class SharedDirectory {
  public:
    // Errors as of StagedDirectory.
    SharedDirectory(const std::filesystem::path& root, const std::filesystem::path& model,
                    const std::vector<TensorInfo>& tensors, std::int64_t version)
        : directory_(root, model, tensors, version) {}

    const StagedDirectory& directory() const { return directory_; }

    // By who fills it; the first of these calls counts.
    void finish(Announced announced);
    void give_up();
    bool given_up() const;
    // By the others, with what was announced to them. Throws ProtocolError: it was given up, or holds other bytes;
    // DeadlineExceeded naming `peer`, the server that waits for it.
    void wait_whole(const Announced& announced, const std::string& peer, Deadline deadline) const;

  private:
    enum class State : std::uint8_t { filling, whole, given_up };
    StagedDirectory directory_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    State state_ = State::filling;
    Announced announced_;
};

// The directories of one push. They stay until it goes, so that a slow server finds its own staged.
class StagingShare {
  public:
    struct Claim {
        std::shared_ptr<SharedDirectory> directory;
        bool fill = true;  // the caller's to fill
    };
    // Blocks while another thread makes a directory.
    Claim claim(const std::filesystem::path& root, const std::filesystem::path& model,
                const std::vector<TensorInfo>& tensors, std::int64_t version);

  private:
    struct Entry {
        std::string key;
        std::shared_ptr<SharedDirectory> directory;
    };
    std::mutex mutex_;
    std::vector<Entry> entries_;
};

}  // namespace tandem::engine
