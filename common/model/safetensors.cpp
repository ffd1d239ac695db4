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
#include <numeric>
#include <set>

#include "common/align.h"
#include "common/error.h"
#include "common/model/mapped_files.h"
#include "common/model/safetensors_header.h"
#include "common/model/safetensors_index.h"
#include "common/model/safetensors_layout.h"
#include "common/text_file.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;

// A whole file mapped copy-on-write: no write through it reaches the file.
class Mapping {
  public:
    explicit Mapping(const std::string& file) {
        const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // no pipe is waited for
        if (fd < 0) throw ConfigError(file, "", std::string("cannot be opened: ") + std::strerror(errno));
        struct stat info {};
        const bool known = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
        bytes_ = known ? static_cast<std::size_t>(info.st_size) : 0;
        void* at = bytes_ == 0
                       ? MAP_FAILED
                       : ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
        ::close(fd);
        opened_ = info;
        if (at == MAP_FAILED) throw ConfigError(file, "", "is empty or cannot be mapped");
        data_ = static_cast<std::byte*>(at);
        remember_mapping(span());
    }
    ~Mapping() {
        if (data_ == nullptr) return;
        forget_mapping(span());
        ::munmap(data_, bytes_);
    }
    Mapping(Mapping&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), opened_(other.opened_) {}
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    Mapping& operator=(Mapping&&) = delete;
    Span span() const { return {data_, bytes_}; }
    // Whether the file was written, or could not be read, since it was mapped. One that replaced it under its name is another
    // one.
    bool changed(const std::string& file) const {
        if (gave_zeros(span())) return true;
        struct stat now {};
        if (::stat(file.c_str(), &now) != 0 || now.st_dev != opened_.st_dev || now.st_ino != opened_.st_ino)
            return false;
        return now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
               now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec;
    }
    // The pages that lie in [begin, end) altogether.
    void release(std::size_t begin, std::size_t end) const {
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        const std::size_t first = round_up(begin, page), last = end / page * page;
        if (first < last) ::madvise(data_ + first, last - first, MADV_DONTNEED);  // a hint
    }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    struct stat opened_ {};
};

// What a folder without weights that are read has in their place: ", but …".
std::string found_instead(const fs::path& root) {
    for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
        std::error_code none;
        const fs::path target = fs::read_symlink(root / name, none);
        if (!none) return fmt::format(": {} is a link to {}, which is not there", name, target.string());
    }
    std::error_code none;
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(root, none)) {
        const std::string name = entry.path().filename().string(), end = entry.path().extension().string();
        if (name.starts_with("adapter_model.")) {
            found[name] = "a LoRA adapter: merge it into its base model";
        } else if (end == ".bin" || end == ".pt" || end == ".pth" || end == ".ckpt") {
            found[name] = "a pickle, which could run code: save it as safetensors";
        } else if (end == ".safetensors") {
            found[name] =
                "which no index names: download model.safetensors.index.json, or rename a single file";
        } else if (end == ".gguf" || end == ".h5" || end == ".msgpack" || end == ".onnx") {
            found[name] = "of another format: save it as safetensors";
        }
    }
    return found.empty() ? "" : fmt::format(", but {}, {}", found.begin()->first, found.begin()->second);
}

}  // namespace

struct Safetensors::Impl {
    struct Located {
        SafetensorsEntry entry;
        std::size_t mapping = 0;
    };

    // Maps a file and takes in its tensors; with an index, exactly those that it assigns to this file.
    void add(const fs::path& path, const SafetensorsIndex* index) {
        const std::string file = path.string(), name = path.filename().string();
        mappings.emplace_back(file);
        files.push_back(file);
        for (auto& [tensor, entry] : parse_safetensors_header(mappings.back().span(), file)) {
            if (index != nullptr) {
                const auto found = index->find(tensor);
                if (found == index->end()) throw ConfigError(file, tensor, "is not named by the index");
                if (found->second != name) {
                    throw ConfigError(file, tensor, "is here, although the index names " + found->second);
                }
            }
            tensors[tensor] = {std::move(entry), mappings.size() - 1};
        }
    }

    const Located& at(const std::string& name) const {
        const auto found = tensors.find(name);
        if (found == tensors.end()) throw ConfigError(directory, name, "missing from the safetensors files");
        return found->second;
    }

    // Bytes [begin, end) of a file as a tensor.
    Tensor view(const Located& located, std::size_t begin, std::size_t end, Shape shape) const {
        const DType dtype = located.entry.dtype;
        const Span bytes = mappings[located.mapping].span().subspan(begin, end - begin);
        if (reinterpret_cast<std::uintptr_t>(bytes.data) % dtype_size(dtype) == 0) {
            return Tensor::borrow(bytes, std::move(shape), dtype);
        }
        Tensor aligned = Tensor::empty(std::move(shape), dtype, "safetensors");  // a header of odd length
        if (bytes.bytes > 0) std::memcpy(aligned.raw(), bytes.data, bytes.bytes);
        return aligned;
    }

    std::string directory;
    std::vector<Mapping> mappings;
    std::vector<std::string> files;  // of the mappings
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
    if (!fs::is_directory(root, ignored))
        throw ConfigError(directory, "",
                          "is not a directory that can be read: name the one with config.json");
    const fs::path single = root / "model.safetensors", index = root / "model.safetensors.index.json";
    if (fs::exists(single, ignored)) {
        impl->add(single, nullptr);
    } else if (fs::exists(index, ignored)) {
        const auto wanted = parse_safetensors_index(read_text_file(index.string()), index.string());
        std::set<std::string> files;
        for (const auto& [tensor, file] : wanted) files.insert(file);
        for (const std::string& file : files) impl->add(root / file, &wanted);
        for (const auto& [tensor, file] : wanted) {
            if (!impl->tensors.contains(tensor)) {
                throw ConfigError((root / file).string(), tensor,
                                  "missing, although the index names it here");
            }
        }
    } else {
        throw ConfigError(
            directory, "",
            "has neither model.safetensors nor model.safetensors.index.json" + found_instead(root));
    }
    return Safetensors(std::move(impl));
}

Safetensors Safetensors::open_file(const std::string& file) {
    auto impl = std::make_unique<Impl>();
    impl->directory = file;
    impl->add(file, nullptr);
    return Safetensors(std::move(impl));
}

const std::string& Safetensors::directory() const {
    return impl_->directory;
}

std::vector<std::string> Safetensors::names() const {
    std::vector<std::string> names;
    for (const auto& [name, located] : impl_->tensors) names.push_back(name);
    return names;
}

bool Safetensors::contains(const std::string& name) const {
    return impl_->tensors.contains(name);
}

std::string Safetensors::file(const std::string& name) const {
    return impl_->files[impl_->at(name).mapping];
}

DType Safetensors::dtype(const std::string& name) const {
    return impl_->at(name).entry.dtype;
}

const Shape& Safetensors::shape(const std::string& name) const {
    return impl_->at(name).entry.shape;
}

Tensor Safetensors::tensor(const std::string& name) const {
    const Impl::Located& located = impl_->at(name);
    return impl_->view(located, located.entry.begin, located.entry.end, located.entry.shape);
}

Tensor Safetensors::rows(const std::string& name, std::int64_t first, std::int64_t count) const {
    const Impl::Located& located = impl_->at(name);
    Shape shape = located.entry.shape;
    require(!shape.empty() && first >= 0 && count >= 0 && first <= shape[0] - count,
            "rows [{}, {} + {}) of {}, which is {}", first, first, count, name, tandem::to_string(shape));
    const std::size_t row_bytes =
        shape[0] == 0 ? 0 : (located.entry.end - located.entry.begin) / static_cast<std::size_t>(shape[0]);
    const std::size_t begin = located.entry.begin + static_cast<std::size_t>(first) * row_bytes;
    shape[0] = count;
    return impl_->view(located, begin, begin + static_cast<std::size_t>(count) * row_bytes, std::move(shape));
}

std::string Safetensors::changed_file() const {
    for (std::size_t i = 0; i < impl_->mappings.size(); ++i) {
        if (impl_->mappings[i].changed(impl_->files[i])) return impl_->files[i];
    }
    return "";
}

void Safetensors::require_unchanged() const {
    const std::string file = changed_file();
    if (file.empty()) return;
    throw Error(
        fmt::format("{} was written to or cut off while it was read, or its disk failed: start again when it "
                    "is whole (what is written "
                    "under another name, and renamed, can be read at any time)",
                    file));
}

void Safetensors::release(const std::string& name) const {
    const Impl::Located& located = impl_->at(name);
    impl_->mappings[located.mapping].release(located.entry.begin, located.entry.end);
}

void write_safetensors(const std::string& file, const std::vector<std::pair<std::string, Tensor>>& tensors) {
    std::vector<SafetensorsItem> items;
    for (const auto& [name, tensor] : tensors) items.push_back({name, tensor.dtype(), tensor.shape()});
    const SafetensorsLayout layout = safetensors_layout(items);
    std::vector<std::size_t> order(items.size());  // as they lie in the file
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return layout.begins[a] < layout.begins[b]; });

    const std::string temporary = file + ".tmp." + std::to_string(::getpid());
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(layout.head.data(), static_cast<std::streamsize>(layout.head.size()));
    for (const std::size_t i : order) {
        const Tensor& tensor = tensors[i].second;
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
