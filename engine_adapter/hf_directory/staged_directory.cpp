#include "engine_adapter/hf_directory/staged_directory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/model/safetensors_layout.h"

namespace tandem::engine {
namespace {

namespace fs = std::filesystem;

// tandem-staged.vVERSION.XXXXXX, and beside it, with a t at the end, a second name of its weights (sglang/shared_bucket.h).
constexpr std::string_view kPrefix = "tandem-staged.";
constexpr const char* kWeights = "model.safetensors";
constexpr std::string_view kNote = "note.";        // and a number
constexpr std::uintmax_t kLargestJson = 1u << 20;  // a tokenizer's are larger; weights are read without them

std::vector<LeftNote> notes_in(const std::shared_ptr<LeftFolder>& folder) {
    std::vector<LeftNote> notes;
    for (const std::string& name : folder->names()) {
        if (!name.starts_with(kNote)) continue;
        if (const std::optional<std::string> text = folder->read(name))
            notes.push_back({folder, name, *text});
    }
    return notes;
}

// Second names whose directory is gone, or goes.
void remove_second_names(const fs::path& root) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with(kPrefix) || !name.ends_with('t')) continue;
        struct stat status {};
        if (::lstat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
            status.st_uid != ::geteuid())
            continue;
        const fs::path directory = root / name.substr(0, name.size() - 1);
        if (!fs::exists(fs::symlink_status(directory, error)) || left_folder(directory))
            ::unlink(entry.path().c_str());
    }
}

void copy_json_files(const fs::path& from, const fs::path& to) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
        const std::string name = entry.path().filename();
        if (!name.ends_with(".json") || name.ends_with(".index.json") || !entry.is_regular_file(error))
            continue;
        if (entry.file_size(error) > kLargestJson) continue;
        fs::copy_file(entry.path(), to / name);
    }
}

}  // namespace

StagedDirectory::StagedDirectory(const fs::path& root, const fs::path& model,
                                 const std::vector<TensorInfo>& tensors, std::int64_t version)
    : folder_(root, fmt::format("{}v{}.", kPrefix, version)) {
    std::vector<model::SafetensorsItem> items;
    for (const TensorInfo& tensor : tensors) items.push_back({tensor.name, tensor.dtype, tensor.shape});
    const model::SafetensorsLayout layout = model::safetensors_layout(items);
    copy_json_files(model, path());
    map_weights(layout.head, layout.bytes);
    for (std::size_t i = 0; i < items.size(); ++i)
        tensors_.push_back(mapped_.subspan(layout.begins[i], items[i].bytes()));
}

// Reserves the pages first: without, a full file system would be a SIGBUS in the middle of writing.
void StagedDirectory::map_weights(const std::string& head, std::size_t bytes) {
    const fs::path file = weights();
    const FileDescriptor fd = folder_.create(kWeights);
    if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
        throw Error(
            fmt::format("{} has no room for {:.1f} MiB of staged weights ({}): free some, or mount it larger",
                        path().parent_path().string(), static_cast<double>(bytes) / 1048576.0,
                        SystemError("posix_fallocate", error).what()));
    }
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) throw SystemError("mmap " + file.string(), errno);
    mapped_ = {static_cast<std::byte*>(memory), bytes};
    std::copy_n(reinterpret_cast<const std::byte*>(head.data()), head.size(), mapped_.data);
}

StagedDirectory::~StagedDirectory() {
    if (mapped_.data != nullptr) ::munmap(mapped_.data, mapped_.bytes);
}

fs::path StagedDirectory::weights() const {
    return path() / kWeights;
}

std::uint64_t StagedDirectory::begin(std::size_t tensor) const {
    return static_cast<std::uint64_t>(memory(tensor).data - mapped_.data);
}

Span StagedDirectory::memory(std::size_t tensor) const {
    return tensors_.at(tensor);
}

void StagedDirectory::note(const std::string& text) const {
    const std::string name = fmt::format("{}{:x}", kNote, std::hash<std::string>()(text));
    folder_.remove(name);  // of the same text
    folder_.write(name, text);
}

bool is_staged_directory(const fs::path& path) {
    return path.filename().string().starts_with(kPrefix);
}

void LeftNote::forget() const {
    folder->remove(name);
    if (notes_in(folder).empty()) folder->remove_all();
}

std::vector<LeftNote> sweep_staged_directories(const fs::path& root) {
    remove_second_names(root);
    std::vector<LeftNote> notes;
    for (LeftFolder& left : left_folders(root, kPrefix)) {
        const auto folder = std::make_shared<LeftFolder>(std::move(left));
        const std::vector<LeftNote> its = notes_in(folder);
        if (its.empty())
            folder->remove_all();
        else
            folder->remove(kWeights);
        notes.insert(notes.end(), its.begin(), its.end());
    }
    return notes;
}

bool left_paused(const std::string& name, const fs::path& root) {
    bool found = false;
    for (const LeftNote& note : sweep_staged_directories(root)) {
        if (note.text != name) continue;
        found = true;
        note.forget();
    }
    return found;
}

}  // namespace tandem::engine
