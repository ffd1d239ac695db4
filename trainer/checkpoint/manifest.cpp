#include "trainer/checkpoint/manifest.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
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

Manifest::TensorEntry tensor_from(const json& entry, const std::string& name) {
    Manifest::TensorEntry tensor{dtype_from_name(entry.at("dtype").get<std::string>()), {}, {}};
    for (const auto& dim : entry.at("shape")) tensor.shape.push_back(integer_of(dim));
    const std::int64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
    for (const auto& range : entry.at("rows")) {
        const RowRange held{integer_of(range.at(0), 0, rows), integer_of(range.at(1), 0, rows)};
        enforce(held.first <= rows - held.count, "{} rows of {} from {} on, which has {}", held.count, name,
                held.first, rows);
        tensor.rows.push_back(held);
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
    for (const auto& [name, entry] : j.at("tensors").items()) {
        m.tensors[name] = tensor_from(entry, name);
        const std::size_t ranks = m.tensors.begin()->second.rows.size();
        enforce(m.tensors[name].rows.size() == ranks, "{} has rows of {} ranks, another tensor of {}", name,
                m.tensors[name].rows.size(), ranks);
    }
    for (const auto& [name, entry] : j.at("files").items()) {
        enforce(name.find('/') == std::string::npos, "{} is not a name of a file in this folder", name);
        m.files[name] = {static_cast<std::size_t>(integer_of(entry.at("bytes"))),
                         ops::checksum_from_hex(entry.at("xxh3_128").get<std::string>())};
    }
    return m;
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
    for (const auto& [name, tensor] : m.tensors) {
        auto rows = ordered_json::array();
        for (const RowRange& range : tensor.rows) rows.push_back({range.first, range.count});
        out["tensors"][name] = {
            {"dtype", std::string(dtype_name(tensor.dtype))}, {"shape", tensor.shape}, {"rows", rows}};
    }
    return out.dump(1) + "\n";
}

Manifest read_manifest(const std::string& directory) {
    const std::string file = directory + "/manifest.json";
    const json text = parse_json_file(read_text_file(file), file);
    if (!text.is_object() || text.value("format", json()) != kFormat) {
        throw ConfigError(file, "format", fmt::format("is not \"{}\"", kFormat));
    }
    try {
        return from_json(text);
    } catch (const std::exception& error) {
        throw ConfigError(file, "", error.what());
    }
}

void require_rows(const model::Safetensors& file, const std::string& name, const Manifest::TensorEntry& entry,
                  const RowRange& held) {
    Shape shape = entry.shape;
    if (!shape.empty()) shape[0] = held.count;
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
