#include "common/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/model/safetensors_header.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

// A whole file mapped copy-on-write: nobody can write through it into the file.
class Mapping {
  public:
    explicit Mapping(const std::string& file) {
        const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) throw ConfigError(file, "", std::string("cannot be opened: ") + std::strerror(errno));
        struct stat info {};
        const bool known = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
        bytes_ = known ? static_cast<std::size_t>(info.st_size) : 0;
        void* at =
            bytes_ == 0 ? MAP_FAILED : ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        ::close(fd);
        if (at == MAP_FAILED) throw ConfigError(file, "", "is empty or cannot be mapped");
        data_ = static_cast<std::byte*>(at);
    }
    ~Mapping() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }
    Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    Mapping& operator=(Mapping&&) = delete;
    Span span() const { return {data_, bytes_}; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// name -> file name, from model.safetensors.index.json.
std::map<std::string, std::string> read_index(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    json index;
    try {
        index = json::parse(stream);
    } catch (const json::exception& error) {
        throw ConfigError(file, "", std::string("malformed JSON: ") + error.what());
    }
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
        throw ConfigError(file, "weight_map", "missing");
    }
    std::map<std::string, std::string> names;
    for (const auto& [name, value] : index["weight_map"].items()) {
        if (!value.is_string() || value.get<std::string>().find('/') != std::string::npos) {
            throw ConfigError(file, name, "must name a file of the same directory");
        }
        names[name] = value.get<std::string>();
    }
    return names;
}

}  // namespace

struct Safetensors::Impl {
    struct Located {
        SafetensorsEntry entry;
        std::size_t mapping = 0;
    };

    // Maps `file` and takes in its tensors: all of them, or those that `wanted` assigns to it.
    void add(const fs::path& directory, const std::string& name,
             const std::map<std::string, std::string>* wanted) {
        const std::string file = (directory / name).string();
        mappings.emplace_back(file);
        auto entries = parse_safetensors_header(mappings.back().span(), file);
        for (auto& [tensor, entry] : entries) {
            if (wanted != nullptr) {
                const auto found = wanted->find(tensor);
                if (found == wanted->end() || found->second != name) continue;
            }
            tensors[tensor] = {std::move(entry), mappings.size() - 1};
        }
    }

    std::string directory;
    std::vector<Mapping> mappings;
    std::map<std::string, Located> tensors;
};

Safetensors::Safetensors(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Safetensors::~Safetensors() = default;
Safetensors::Safetensors(Safetensors&&) noexcept = default;
Safetensors& Safetensors::operator=(Safetensors&&) noexcept = default;

Safetensors Safetensors::open(const std::string& directory) {
    const fs::path root(directory);
    auto impl = std::make_unique<Impl>();
    impl->directory = directory;
    std::error_code ignored;
    const fs::path index = root / "model.safetensors.index.json";
    if (fs::exists(root / "model.safetensors", ignored)) {
        impl->add(root, "model.safetensors", nullptr);
    } else if (fs::exists(index, ignored)) {
        const auto wanted = read_index(index.string());
        std::vector<std::string> files;
        for (const auto& [tensor, file] : wanted) files.push_back(file);
        std::sort(files.begin(), files.end());
        files.erase(std::unique(files.begin(), files.end()), files.end());
        for (const std::string& file : files) impl->add(root, file, &wanted);
        for (const auto& [tensor, file] : wanted) {
            if (!impl->tensors.contains(tensor)) {
                throw ConfigError((root / file).string(), tensor,
                                  "missing, although the index names it here");
            }
        }
    } else {
        throw ConfigError(directory, "", "has neither model.safetensors nor model.safetensors.index.json");
    }
    return Safetensors(std::move(impl));
}

std::vector<std::string> Safetensors::names() const {
    std::vector<std::string> names;
    for (const auto& [name, located] : impl_->tensors) names.push_back(name);
    return names;
}

bool Safetensors::contains(const std::string& name) const {
    return impl_->tensors.contains(name);
}

Tensor Safetensors::tensor(const std::string& name) const {
    const auto found = impl_->tensors.find(name);
    if (found == impl_->tensors.end())
        throw ConfigError(impl_->directory, name, "missing from the safetensors files");
    const SafetensorsEntry& entry = found->second.entry;
    const Span bytes =
        impl_->mappings[found->second.mapping].span().subspan(entry.begin, entry.end - entry.begin);
    if (reinterpret_cast<std::uintptr_t>(bytes.data) % dtype_size(entry.dtype) == 0) {
        return Tensor::borrow(bytes, entry.shape, entry.dtype);
    }
    Tensor aligned = Tensor::empty(entry.shape, entry.dtype, "safetensors");  // a header of odd length
    if (bytes.bytes > 0) std::memcpy(aligned.raw(), bytes.data, bytes.bytes);
    return aligned;
}

void write_safetensors(const std::string& file, const std::vector<std::pair<std::string, Tensor>>& tensors) {
    std::vector<const std::pair<std::string, Tensor>*> order;
    for (const auto& tensor : tensors) order.push_back(&tensor);
    // Widest elements first, so that every tensor is aligned to its element.
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
        return dtype_size(a->second.dtype()) > dtype_size(b->second.dtype());
    });
    ordered_json header;
    header["__metadata__"] = {{"format", "pt"}};  // transformers refuses files without it
    std::size_t at = 0;
    for (const auto* item : order) {
        const auto& [name, tensor] = *item;
        require(!header.contains(name), "tensor {} twice in {}", name, file);
        header[name] = {{"dtype", std::string(safetensors_dtype_name(tensor.dtype()))},
                        {"shape", tensor.shape()},
                        {"data_offsets", {at, at + tensor.bytes()}}};
        at += tensor.bytes();
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');

    const std::string temporary = file + ".tmp." + std::to_string(::getpid());
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    const std::uint64_t length = text.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto* item : order) {
        const Tensor& tensor = item->second;
        out.write(reinterpret_cast<const char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()));
    }
    out.close();
    if (!out || std::rename(temporary.c_str(), file.c_str()) != 0) {
        const int error = errno;
        std::remove(temporary.c_str());
        throw SystemError("write " + file, error);
    }
}

}  // namespace tandem::model
