#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>

#include "common/model/safetensors_layout.h"
#include "common/tensor/host_access.h"
#include "common/text_file.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/hash.h"
#include "trainer/checkpoint/room.h"
#include "trainer/checkpoint/training.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytesAtOnce = std::size_t{8} << 20;

std::optional<std::int64_t> step_of(const fs::path& path) {
    const std::string name = path.filename().string(), prefix = "step-";
    if (!name.starts_with(prefix) || name.size() > prefix.size() + 18 || name.size() == prefix.size())
        return {};
    const std::string digits = name.substr(prefix.size());
    if (digits.find_first_not_of("0123456789") != std::string::npos) return {};
    return std::stoll(digits);
}

// A file that is written from its first byte to its last, and hashed on the way.
class HashedFile {
  public:
    explicit HashedFile(const std::string& path) : out_(path, OutputFile::Open::create) {}
    void append(ConstSpan bytes) {
        while (bytes.bytes > 0) {  // in pieces that the cache still holds when they are written
            const ConstSpan part = bytes.subspan(0, std::min(bytes.bytes, kMostBytesAtOnce));
            hash_.add(part);
            out_.write_at(at_, part);
            at_ += part.bytes;
            bytes = bytes.subspan(part.bytes, bytes.bytes - part.bytes);
        }
    }
    void append(std::string_view text) {
        append(ConstSpan{reinterpret_cast<const std::byte*>(text.data()), text.size()});
    }
    Manifest::File finish() {
        out_.sync();
        return {at_, hash_.value()};
    }

  private:
    OutputFile out_;
    Hash hash_;
    std::size_t at_ = 0;
};

// A GPU's rows come over in pieces.
void append(HashedFile& file, const Tensor& rows, HostAccess& access) {
    if (rows.device() == Device{}) return file.append(rows.span());
    const Tensor flat = rows.reshape({rows.numel()});
    const auto most = static_cast<std::int64_t>(kMostBytesAtOnce / dtype_size(rows.dtype()));
    for (std::int64_t done = 0; done < flat.numel(); done += most)
        file.append(access.read(flat.rows(done, std::min(most, flat.numel() - done))).span());
}

// Each rank's report to rank 0 on its file: size and checksum, then its block of each tensor.
struct RankReport {
    std::uint64_t bytes = 0, low = 0, high = 0;
};

Manifest::File write_rank_file(const std::string& path, const NamedTensors& tensors,
                               const std::function<void(const char*)>& at) {
    std::vector<model::SafetensorsItem> items;
    for (const auto& [name, tensor] : tensors) {
        items.push_back({name, tensor.dtype(), block_shape(tensor.shape(), written_block(tensor))});
    }
    const model::SafetensorsLayout layout = model::safetensors_layout(items);
    std::vector<std::size_t> order(items.size());  // as they lie in the file
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return layout.begins[a] < layout.begins[b]; });
    HashedFile file(path);
    HostAccess access;
    file.append(layout.head);
    at("rank file: header");
    for (const std::size_t i : order) {
        const DTensor& tensor = tensors[i].second;
        const TensorBlock block = written_block(tensor);
        append(file, local_rows(tensor, block.first_row, block.rows), access);
        at("rank file: tensor");
    }
    const Manifest::File result = file.finish();
    at("rank file: synced");
    return result;
}

template <typename T>
std::vector<T> gather_all(comm::Communicator& world, const std::vector<T>& own) {
    std::vector<T> all(own.size() * static_cast<std::size_t>(world.size()));
    world.all_gather({reinterpret_cast<const std::byte*>(own.data()), own.size() * sizeof(T)},
                     {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(T)});
    return all;
}

// Rank 0's manifest with what all ranks wrote.
void gather_reports(Manifest& manifest, const Manifest::File& own, const NamedTensors& tensors,
                    comm::Communicator& world) {
    std::vector<TensorBlock> blocks;
    for (const auto& [name, tensor] : tensors) blocks.push_back(written_block(tensor));
    const auto all_blocks = gather_all(world, blocks);
    const auto reports =
        gather_all(world, std::vector<RankReport>{{own.bytes, own.checksum.low, own.checksum.high}});
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto& [name, tensor] = tensors[i];
        Manifest::TensorEntry entry{tensor.dtype(), tensor.shape(), {}};
        for (std::size_t rank = 0; rank < reports.size(); ++rank)
            entry.blocks.push_back(all_blocks[rank * tensors.size() + i]);
        manifest.tensors[name] = std::move(entry);
    }
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
        const RankReport& report = reports[rank];
        manifest.files[rank_file(rank)] = {static_cast<std::size_t>(report.bytes), {report.low, report.high}};
    }
}

void remove_old(const std::string& folder, std::int64_t step, std::int64_t keep) {
    std::int64_t kept = 0;
    for (const std::string& directory : training_checkpoints(folder)) {
        if (*step_of(directory) > step) continue;
        if (++kept <= keep) continue;
        // Never half a checkpoint under a checkpoint's name.
        const std::string going = folder + "/." + fs::path(directory).filename().string() + ".partial";
        fs::remove_all(going);
        fs::rename(directory, going);
        fs::remove_all(going);
    }
}

}  // namespace

namespace {

void write_what_all_wrote(const Manifest& manifest_so_far, const std::string& working,
                          const std::string& name, const TrainingCheckpoint& checkpoint) {
    Manifest manifest = manifest_so_far;
    for (const std::string& log : checkpoint.logs) {
        const std::string file = fs::path(log).filename().string();
        HashedFile copy(working + "/" + file);
        copy.append(read_text_file(log, std::size_t{1} << 40));
        manifest.files[file] = copy.finish();
    }
    checkpoint.at("logs");
    write_durably(working + "/manifest.json", to_json(manifest));
    checkpoint.at("manifest");
    replace_folder(working, checkpoint.folder + "/" + name);
    checkpoint.at("named");
    remove_old(checkpoint.folder, manifest.step, checkpoint.keep);
    checkpoint.at("older ones removed");
}

}  // namespace

std::uint64_t training_checkpoint_bytes(const NamedTensors& tensors) {
    std::uint64_t bytes = std::uint64_t{64} << 10;  // manifest.json, headers, what blocks round up
    for (const auto& [name, tensor] : tensors)
        bytes += static_cast<std::uint64_t>(numel(tensor.shape())) * dtype_size(tensor.dtype());
    return bytes;
}

void write_training_checkpoint(const NamedTensors& tensors, comm::Communicator& world,
                               const TrainingCheckpoint& checkpoint) {
    const std::string name = fmt::format("step-{}", checkpoint.manifest.step);
    const std::string working = checkpoint.folder + "/." + name + ".partial";
    const bool first = world.rank() == 0;
    try {
        together(world, [&] {
            if (!first) return;
            fs::create_directories(checkpoint.folder);
            fs::remove_all(working);
            fs::create_directory(working);
            checkpoint.at("folder");
        });
        Manifest::File own;
        together(world, [&] {
            own = write_rank_file(working + "/" + rank_file(static_cast<std::size_t>(world.rank())), tensors,
                                  checkpoint.at);
        });
        Manifest manifest = checkpoint.manifest;
        gather_reports(manifest, own, tensors, world);  // everyone's blocks are on the disk
        together(world, [&] {
            if (first) write_what_all_wrote(manifest, working, name, checkpoint);
        });
    } catch (const NoRoom&) {
        std::error_code none;
        if (first) fs::remove_all(working, none);
        throw;
    }
}

std::vector<std::string> training_checkpoints(const std::string& folder) {
    std::vector<std::pair<std::int64_t, std::string>> found;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
        if (const auto step = step_of(entry.path())) found.emplace_back(*step, entry.path().string());
    }
    std::sort(found.rbegin(), found.rend());
    std::vector<std::string> result;
    for (auto& [step, path] : found) result.push_back(std::move(path));
    return result;
}

void clean_up_checkpoints(const std::string& folder) {
    std::error_code none;
    std::vector<fs::path> left;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
        if (!step_of(entry.path())) left.push_back(entry.path());
    }
    for (const fs::path& path : left) {
        const fs::path name = path.parent_path() / path.stem();
        if (path.extension() == ".old" && step_of(name) && !fs::exists(name)) {
            fs::rename(path, name);
        } else if (path.filename().string().starts_with(".step-") || path.extension() == ".old") {
            fs::remove_all(path);
        }
    }
}

}  // namespace tandem::trainer
