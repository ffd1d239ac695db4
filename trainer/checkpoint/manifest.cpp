#include "trainer/checkpoint/manifest.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <iterator>
#include <map>
#include <thread>

#include "common/error.h"
#include "common/json_text.h"
#include "common/text_file.h"
#include "common/thread.h"
#include "trainer/checkpoint/hash.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFormat = "tandem training checkpoint 1";
constexpr std::size_t kReadBytes = std::size_t{4} << 20;

struct Range {
    std::int64_t first = 0, count = 0;
};

// [first, count] of a rank, inside of `size`.
Range range_from(const json& range, std::int64_t size, const char* what) {
    const Range held{integer_of(range.at(0), 0, size), integer_of(range.at(1), 0, size)};
    enforce(held.first <= size - held.count, "{} {} from {} on, of {}", held.count, what, held.first, size);
    return held;
}

TensorBlock whole_from(const Shape& shape) {
    std::int64_t elements = 1;
    for (const std::int64_t dim : shape) {
        enforce(!__builtin_mul_overflow(elements, std::max<std::int64_t>(dim, 1), &elements),
                "shape {} overflows", to_string(shape));
    }
    return whole_block(shape);
}

// No element in two blocks. Goes down the rows; `open` holds, by their first column, the blocks that no later one has been
// found to lie below: they share no column.
void require_apart(std::vector<TensorBlock> blocks) {
    std::sort(blocks.begin(), blocks.end(),
              [](const TensorBlock& a, const TensorBlock& b) { return a.first_row < b.first_row; });
    std::map<std::int64_t, TensorBlock> open;
    for (const TensorBlock& block : blocks) {
        if (block.numel() == 0) continue;
        auto at = open.lower_bound(block.first_column);
        if (at != open.begin() && std::prev(at)->second.end_column() > block.first_column) --at;
        while (at != open.end() && at->first < block.end_column()) {
            enforce(at->second.end_row() <= block.first_row, "row {}, column {} is there twice",
                    block.first_row, std::max(block.first_column, at->first));
            at = open.erase(at);
        }
        open.emplace(block.first_column, block);
    }
}

void require_every_element_once(const Manifest::TensorEntry& tensor) {
    require_apart(tensor.blocks);
    std::int64_t missing = numel(tensor.shape);
    for (const TensorBlock& block : tensor.blocks) missing -= block.numel();
    enforce(missing == 0, "{} of its {} elements are nowhere", missing, numel(tensor.shape));
}

Manifest::TensorEntry tensor_from(const json& entry) {
    Manifest::TensorEntry tensor{dtype_from_name(entry.at("dtype").get<std::string>()), {}, {}};
    for (const auto& dim : entry.at("shape")) tensor.shape.push_back(integer_of(dim));
    const TensorBlock whole = whole_from(tensor.shape);
    for (const auto& rank : entry.at("rows")) {
        const Range rows = range_from(rank, whole.rows, "rows");
        tensor.blocks.push_back({rows.first, rows.count, 0, whole.columns});
    }
    if (!entry.contains("columns")) return tensor;
    const json& columns = entry.at("columns");
    enforce(columns.size() == tensor.blocks.size(), "columns of {} ranks, rows of {}", columns.size(),
            tensor.blocks.size());
    for (std::size_t rank = 0; rank < columns.size(); ++rank) {
        const Range held = range_from(columns.at(rank), whole.columns, "columns");
        tensor.blocks[rank].first_column = held.first;
        tensor.blocks[rank].columns = held.count;
        block_shape(tensor.shape, tensor.blocks[rank]);  // refuses what is not whole indices of dim 1
    }
    return tensor;
}

Manifest from_json(const json& j) {
    Manifest m;
    m.step = integer_of(j.at("step"));
    m.optimizer_steps = integer_of(j.at("optimizer_steps"));
    m.config = j.at("config");
    m.model = j.at("model");
    m.loop = j.at("loop");
    m.mesh = j.at("mesh");
    if (j.contains("data")) m.data = j.at("data");
    for (const auto& [name, entry] : j.at("files").items()) {
        enforce(name.find('/') == std::string::npos, "{} is not a name of a file in this folder", name);
        m.files[name] = {static_cast<std::size_t>(integer_of(entry.at("bytes"))),
                         ops::checksum_from_hex(entry.at("xxh3_128").get<std::string>())};
    }
    return m;
}

std::map<std::string, Manifest::TensorEntry> tensors_from_json(const json& entries, const std::string& file) {
    std::map<std::string, Manifest::TensorEntry> tensors;
    for (const auto& [name, entry] : entries.items()) {
        try {
            const Manifest::TensorEntry& tensor = tensors[name] = tensor_from(entry);
            const std::size_t ranks = tensor.blocks.size(), others = tensors.begin()->second.blocks.size();
            enforce(ranks == others, "has rows of {} ranks, another tensor of {}", ranks, others);
            require_every_element_once(tensor);
        } catch (const std::exception& error) {
            throw ConfigError(file, name, error.what());
        }
    }
    return tensors;
}

void verify_file(const std::string& file, const Manifest::File& expected) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) throw ConfigError(file, "", std::string("cannot be opened: ") + std::strerror(errno));
    struct stat info {};
    const bool known = ::fstat(fd, &info) == 0;
    const auto bytes = known ? static_cast<std::size_t>(info.st_size) : 0;
    Hash hash;
    std::vector<std::byte> buffer(std::min(kReadBytes, std::max<std::size_t>(bytes, 1)));
    ssize_t got = 0;
    if (bytes == expected.bytes) {
        while ((got = ::read(fd, buffer.data(), buffer.size())) > 0) {
            hash.add({buffer.data(), static_cast<std::size_t>(got)});
        }
    }
    ::close(fd);
    if (bytes != expected.bytes) {
        throw ConfigError(
            file, "",
            fmt::format("is {} bytes long, its manifest says {}: truncated?", bytes, expected.bytes));
    }
    if (got < 0) throw ConfigError(file, "", "cannot be read");
    if (const ops::Checksum found = hash.value(); !(found == expected.checksum)) {
        throw ConfigError(file, "",
                          fmt::format("is damaged: its XXH3-128 is {}, its manifest says {}", to_hex(found),
                                      to_hex(expected.checksum)));
    }
}

ordered_json entry_json(const Manifest::TensorEntry& tensor) {
    auto rows = ordered_json::array(), columns = ordered_json::array();
    bool cut = false;
    for (const TensorBlock& block : tensor.blocks) {
        rows.push_back({block.first_row, block.rows});
        columns.push_back({block.first_column, block.columns});
        cut = cut || block.columns != whole_block(tensor.shape).columns;
    }
    ordered_json out = {
        {"dtype", std::string(dtype_name(tensor.dtype))}, {"shape", tensor.shape}, {"rows", rows}};
    if (cut) out["columns"] = columns;
    return out;
}

}  // namespace

std::string rank_file(std::size_t rank) {
    return fmt::format("rank-{:05}.safetensors", rank);
}

std::vector<std::string> log_files(const Manifest& manifest) {
    std::vector<std::string> names;
    for (const auto& [name, file] : manifest.files) {
        if (!name.ends_with(".safetensors")) names.push_back(name);
    }
    return names;
}

std::string to_json(const Manifest& m) {
    ordered_json out{{"format", kFormat},  {"step", m.step},   {"optimizer_steps", m.optimizer_steps},
                     {"mesh", m.mesh},     {"loop", m.loop},   {"files", ordered_json::object()},
                     {"config", m.config}, {"model", m.model}, {"tensors", ordered_json::object()}};
    if (!m.data.is_null()) out["data"] = m.data;
    for (const auto& [name, file] : m.files) {
        out["files"][name] = {{"bytes", file.bytes}, {"xxh3_128", to_hex(file.checksum)}};
    }
    for (const auto& [name, tensor] : m.tensors) out["tensors"][name] = entry_json(tensor);
    return out.dump(1) + "\n";
}

Manifest read_manifest(const std::string& directory) {
    const std::string file = directory + "/manifest.json";
    const json text = parse_json_file(read_text_file(file), file);
    if (!text.is_object() || text.value("format", json()) != kFormat) {
        throw ConfigError(file, "format", fmt::format("is not \"{}\"", kFormat));
    }
    try {
        Manifest manifest = from_json(text);
        manifest.tensors = tensors_from_json(text.at("tensors"), file);
        return manifest;
    } catch (const ConfigError&) {
        throw;
    } catch (const std::exception& error) {
        throw ConfigError(file, "", error.what());
    }
}

void require_block(const model::Safetensors& file, const std::string& name,
                   const Manifest::TensorEntry& entry, std::size_t rank) {
    const Shape shape = block_shape(entry.shape, entry.blocks.at(rank));
    if (file.dtype(name) == entry.dtype && file.shape(name) == shape) return;
    throw ConfigError(file.file(name), name,
                      fmt::format("is {} of {}, the manifest says {} of {}", to_string(file.shape(name)),
                                  dtype_name(file.dtype(name)), to_string(shape), dtype_name(entry.dtype)));
}

void verify(const Manifest& manifest, const std::string& directory) {
    std::vector<std::pair<std::string, Manifest::File>> files(manifest.files.begin(), manifest.files.end());
    const std::size_t threads =
        std::min<std::size_t>(files.size(), std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::future<void>> work;
    for (std::size_t t = 0; t < threads; ++t) {
        work.push_back(start_call("that reads a checkpoint", [&, t] {
            for (std::size_t i = t; i < files.size(); i += threads)
                verify_file(directory + "/" + files[i].first, files[i].second);
        }));
    }
    for (auto& part : work) part.wait();
    for (auto& part : work) part.get();
}

}  // namespace tandem::trainer
