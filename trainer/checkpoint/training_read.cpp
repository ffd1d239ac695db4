#include <algorithm>
#include <map>

#include "common/error.h"
#include "common/model/safetensors.h"
#include "common/tensor/host_access.h"
#include "trainer/checkpoint/training.h"

namespace tandem::trainer {
namespace {

// Opened when the first row of theirs is needed.
class RankFiles {
  public:
    explicit RankFiles(std::string directory) : directory_(std::move(directory)) {}
    const model::Safetensors& at(std::size_t rank) {
        const auto found = files_.find(rank);
        if (found != files_.end()) return found->second;
        return files_.emplace(rank, model::Safetensors::open_file(directory_ + "/" + rank_file(rank)))
            .first->second;
    }

    void require_unchanged() const {
        for (const auto& [rank, file] : files_) file.require_unchanged();
    }

  private:
    std::string directory_;
    std::map<std::size_t, model::Safetensors> files_;
};

void read_rows(RankFiles& files, const Manifest::TensorEntry& entry, const std::string& name,
               const DTensor& tensor, const std::string& manifest_file, HostAccess& access) {
    const RowRange wanted = held_rows(tensor);
    std::int64_t found = 0;
    for (std::size_t rank = 0; rank < entry.rows.size(); ++rank) {
        const RowRange& there = entry.rows[rank];
        const std::int64_t first = std::max(there.first, wanted.first);
        const std::int64_t end = std::min(there.first + there.count, wanted.first + wanted.count);
        if (first >= end) continue;
        const model::Safetensors& file = files.at(rank);
        require_rows(file, name, entry, there);
        const Tensor from = file.rows(name, first - there.first, end - first);
        const Tensor to = local_rows(tensor, {first, end - first});
        access.write(from, to);
        file.release(name);
        found += end - first;
    }
    if (found != wanted.count) {
        throw ConfigError(manifest_file, name,
                          fmt::format("has {} of the {} rows from {} on", found, wanted.count, wanted.first));
    }
}

}  // namespace

void read_training_checkpoint(const std::string& directory, const NamedTensors& tensors) {
    const Manifest manifest = read_manifest(directory);
    const std::string file = directory + "/manifest.json";
    RankFiles files(directory);
    HostAccess access;
    for (const auto& [name, tensor] : tensors) {
        const auto found = manifest.tensors.find(name);
        if (found == manifest.tensors.end()) throw ConfigError(file, name, "is not in this checkpoint");
        if (found->second.shape != tensor.shape() || found->second.dtype != tensor.dtype()) {
            throw ConfigError(file, name,
                              fmt::format("is {} of {}, the run needs {} of {}",
                                          to_string(found->second.shape), dtype_name(found->second.dtype),
                                          to_string(tensor.shape()), dtype_name(tensor.dtype())));
        }
        read_rows(files, found->second, name, tensor, file, access);
    }
    files.require_unchanged();
}

}  // namespace tandem::trainer
