#include <cstring>
#include <map>

#include "common/error.h"
#include "common/model/safetensors.h"
#include "common/tensor/host_access.h"
#include "trainer/checkpoint/training.h"

namespace tandem::trainer {
namespace {

// Opened when the first element of theirs is needed.
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

// What of `part` a file has, which has `there` of the tensor.
void read_part(const model::Safetensors& file, const std::string& name, const TensorBlock& there,
               const TensorBlock& part, const DTensor& tensor, HostAccess& access) {
    const TensorBlock held = held_block(tensor);
    const Tensor from = file.rows(name, part.first_row - there.first_row, part.rows);
    const Tensor to = local_rows(tensor, part.first_row, part.rows);
    if (part.columns == there.columns && part.columns == held.columns) return access.write(from, to);
    const bool here = to.device() == Device{};
    const Tensor host = access.read(to);  // whose other columns stay
    TensorBlock rows_from = there, rows_to = held;
    rows_from.first_row = rows_to.first_row = part.first_row;
    const std::size_t element = dtype_size(to.dtype());
    for_each_run(part, rows_from, rows_to, [&](std::int64_t at, std::int64_t into, std::int64_t count) {
        std::memcpy(host.raw() + static_cast<std::size_t>(into) * element,
                    from.raw() + static_cast<std::size_t>(at) * element,
                    static_cast<std::size_t>(count) * element);
    });
    if (!here) access.write(host, to);
}

void read_block(RankFiles& files, const Manifest::TensorEntry& entry, const std::string& name,
                const DTensor& tensor, HostAccess& access) {
    const TensorBlock wanted = held_block(tensor);
    for (std::size_t rank = 0; rank < entry.blocks.size(); ++rank) {
        const TensorBlock part = common_block(entry.blocks[rank], wanted);
        if (part.numel() == 0) continue;
        const model::Safetensors& file = files.at(rank);
        require_block(file, name, entry, rank);
        read_part(file, name, entry.blocks[rank], part, tensor, access);
        file.release(name);
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
        read_block(files, found->second, name, tensor, access);
    }
    files.require_unchanged();
}

}  // namespace tandem::trainer
