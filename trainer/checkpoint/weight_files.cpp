#include "trainer/checkpoint/weight_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "common/error.h"
#include "common/ops/elementwise.h"
#include "common/tensor/host_access.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/room.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStagingBytes = std::int64_t{8} << 20;

// A tensor's place in a file, and what a rank writes of it.
struct Place {
    std::size_t begin = 0;  // of the tensor
    std::int64_t row_numel = 0;
    TensorBlock block;
};

// Elements of the block, from `first` on, counted row by row.
void write_elements(OutputFile& file, const Place& place, std::int64_t first, const Tensor& elements) {
    const TensorBlock& block = place.block;
    const std::size_t element = dtype_size(elements.dtype());
    // What lies together in the file: a row of the block, or all of it.
    const std::int64_t run = block.columns == place.row_numel ? block.numel() : block.columns;
    for (std::int64_t done = 0; done < elements.numel();) {
        const std::int64_t row = (first + done) / run, column = (first + done) % run;
        const std::int64_t count = std::min(run - column, elements.numel() - done);
        const std::int64_t at = (block.first_row + row) * place.row_numel + block.first_column + column;
        file.write_at(place.begin + static_cast<std::size_t>(at) * element,
                      elements.span().subspan(static_cast<std::size_t>(done) * element,
                                              static_cast<std::size_t>(count) * element));
        done += count;
    }
}

class BlockWriter {
  public:
    explicit BlockWriter(DType dtype) : dtype_(dtype) {}

    void write(OutputFile& file, std::size_t begin, const DTensor& tensor) {
        const Place place{begin, whole_block(tensor.shape()).columns, written_block(tensor)};
        if (place.block.numel() == 0) return;
        const Tensor own = local_rows(tensor, place.block.first_row, place.block.rows);
        const Tensor flat = own.reshape({own.numel()});
        if (own.dtype() == dtype_ && own.device() == Device{}) return write_elements(file, place, 0, flat);
        for (std::int64_t done = 0; done < flat.numel(); done += staging().numel()) {
            const std::int64_t count = std::min(staging().numel(), flat.numel() - done);
            const Tensor part = staging().rows(0, count);
            Stream stream = Stream::make_inline();
            ops::cast(stream, access_.read(flat.rows(done, count)), part);
            stream.synchronize();
            write_elements(file, place, done, part);
        }
    }

  private:
    const Tensor& staging() {
        if (!staging_.defined()) {
            const auto numel = kStagingBytes / static_cast<std::int64_t>(dtype_size(dtype_));
            staging_ = Tensor::empty({numel}, dtype_, "checkpoint");
        }
        return staging_;
    }

    DType dtype_;
    Tensor staging_;  // made when it is first needed
    HostAccess access_;
};

}  // namespace

std::vector<WeightFile> plan_weight_files(const NamedTensors& tensors, DType dtype, std::size_t shard_bytes) {
    std::vector<WeightFile> files(1);
    std::vector<std::vector<model::SafetensorsItem>> items(1);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const model::SafetensorsItem item{tensors[i].first, dtype, tensors[i].second.shape()};
        if (bytes > 0 && bytes + item.bytes() > shard_bytes) {
            files.emplace_back();
            items.emplace_back();
            bytes = 0;
        }
        bytes += item.bytes();
        files.back().tensors.push_back(i);
        items.back().push_back(item);
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
        files[i].name = files.size() == 1
                            ? "model.safetensors"
                            : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
        files[i].layout = model::safetensors_layout(items[i]);
    }
    return files;
}

void create_weight_files(const std::vector<WeightFile>& files, const std::string& folder) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::uint64_t bytes = 0;
    for (const WeightFile& file : files) bytes += file.layout.bytes;
    need_room(folder, bytes);
    for (const WeightFile& file : files) {
        OutputFile out(folder + "/" + file.name, OutputFile::Open::create);
        out.resize(file.layout.bytes);
        out.write_at(0, file.layout.head);
    }
}

void write_own_blocks(const std::vector<WeightFile>& files, const NamedTensors& tensors,
                      const std::string& folder, DType dtype) {
    BlockWriter writer(dtype);
    for (const WeightFile& file : files) {
        OutputFile out(folder + "/" + file.name, OutputFile::Open::existing);
        for (std::size_t i = 0; i < file.tensors.size(); ++i)
            writer.write(out, file.layout.begins[i], tensors[file.tensors[i]].second);
        out.sync();
    }
}

void read_weight_block(const model::Safetensors& files, const std::string& name, const TensorBlock& block,
                       const Tensor& to) {
    Stream stream = Stream::make_inline();
    const Tensor flat = to.reshape({to.numel()});
    const bool whole_rows = block.columns == whole_block(files.shape(name)).columns;
    const std::int64_t rows = whole_rows ? block.rows : 1;
    for (std::int64_t row = 0; row < block.rows && flat.numel() > 0; row += rows) {
        const Tensor found = files.rows(name, block.first_row + row, rows);
        const Tensor part = found.reshape({found.numel()}).rows(block.first_column, rows * block.columns);
        ops::cast(stream, part, flat.rows(row * block.columns, part.numel()));
    }
    stream.synchronize();
}

void read_own_blocks(const NamedTensors& tensors, const std::string& directory) {
    const auto files = model::Safetensors::open(directory);
    HostAccess access;
    for (const auto& [name, tensor] : tensors) {
        if (files.shape(name) != tensor.shape()) {
            throw ConfigError(files.file(name), name,
                              fmt::format("has shape {}, the model needs {}", to_string(files.shape(name)),
                                          to_string(tensor.shape())));
        }
        const Tensor& local = tensor.local();
        const bool here = local.device() == Device{};
        const Tensor host = here ? local : Tensor::empty(local.shape(), local.dtype(), "checkpoint");
        read_weight_block(files, name, held_block(tensor), host);
        if (!here) access.write(host, local);
        files.release(name);
    }
    files.require_unchanged();
}

}  // namespace tandem::trainer
