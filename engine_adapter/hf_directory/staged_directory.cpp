#include "engine_adapter/hf_directory/staged_directory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/log.h"
#include "common/model/safetensors_layout.h"

namespace tandem::engine {
namespace {

namespace fs = std::filesystem;

// tandem-staged.NAMESPACE.PID.START.COUNT.vVERSION: of the process its PID namespace and when it started, since
// numbers come again.
constexpr std::string_view kPrefix = "tandem-staged.";
constexpr const char* kWeights = "model.safetensors";
constexpr std::string_view kNote = "note.";        // and a number
constexpr std::uintmax_t kLargestJson = 1u << 20;  // a tokenizer's are larger; weights are read without them

std::string read_text(const fs::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// The 22nd field of /proc/PID/stat, counted behind the name, which may hold anything. Empty: no such process.
std::string start_of(const std::string& pid) {
    const std::string stat = read_text(fs::path("/proc") / pid / "stat");
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return "";
    std::istringstream fields(stat.substr(name_end + 1));
    std::string field;
    for (int i = 0; i < 20; ++i) fields >> field;
    return field;
}

std::string pid_namespace() {
    std::error_code error;
    const std::string link = fs::read_symlink("/proc/self/ns/pid", error).string();  // pid:[4026531836]
    const std::size_t begin = link.find('[');
    return error || begin == std::string::npos ? "0" : link.substr(begin + 1, link.size() - begin - 2);
}

std::string fresh_name(std::int64_t version) {
    static std::atomic<int> count{0};
    const std::string pid = std::to_string(::getpid());
    return fmt::format("{}{}.{}.{}.{}.v{}", kPrefix, pid_namespace(), pid, start_of(pid), ++count, version);
}

// Whether the directory's maker is gone; of other PID namespaces nobody here can tell.
bool is_left_over(const std::string& name) {
    if (!name.starts_with(kPrefix)) return false;
    std::vector<std::string> parts;
    std::istringstream rest(name.substr(kPrefix.size()));
    for (std::string part; std::getline(rest, part, '.');) parts.push_back(part);
    if (parts.size() != 5 || parts[0] != pid_namespace()) return false;
    return start_of(parts[1]) != parts[2];
}

std::vector<LeftNote> notes_in(const fs::path& directory) {
    std::vector<LeftNote> notes;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
        if (entry.path().filename().string().starts_with(kNote))
            notes.push_back({entry.path(), read_text(entry.path())});
    }
    return notes;
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
    : path_(root / fresh_name(version)) {
    std::vector<model::SafetensorsItem> items;
    for (const TensorInfo& tensor : tensors) items.push_back({tensor.name, tensor.dtype, tensor.shape});
    const model::SafetensorsLayout layout = model::safetensors_layout(items);
    if (::mkdir(path_.c_str(), 0700) != 0) throw SystemError("mkdir " + path_.string(), errno);
    try {
        copy_json_files(model, path_);
        map_weights(layout.head, layout.bytes);
    } catch (...) {
        remove();
        throw;
    }
    for (std::size_t i = 0; i < items.size(); ++i)
        tensors_.push_back(mapped_.subspan(layout.begins[i], items[i].bytes()));
}

// Reserves the pages first: without, a full file system would be a SIGBUS in the middle of writing.
void StagedDirectory::map_weights(const std::string& head, std::size_t bytes) {
    const fs::path file = path_ / kWeights;
    const FileDescriptor fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) throw SystemError("open " + file.string(), errno);
    if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
        throw Error(
            fmt::format("{} has no room for {:.1f} MiB of staged weights ({}): free some, or mount it larger",
                        path_.parent_path().string(), static_cast<double>(bytes) / 1048576.0,
                        SystemError("posix_fallocate", error).what()));
    }
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) throw SystemError("mmap " + file.string(), errno);
    mapped_ = {static_cast<std::byte*>(memory), bytes};
    std::copy_n(reinterpret_cast<const std::byte*>(head.data()), head.size(), mapped_.data);
}

StagedDirectory::~StagedDirectory() {
    remove();
}

void StagedDirectory::remove() noexcept {
    if (mapped_.data != nullptr) ::munmap(mapped_.data, mapped_.bytes);
    mapped_ = {};
    std::error_code error;
    fs::remove_all(path_, error);
    if (error) log_warn("{} could not be removed: {}", path_.string(), error.message());
}

fs::path StagedDirectory::weights() const {
    return path_ / kWeights;
}

std::uint64_t StagedDirectory::begin(std::size_t tensor) const {
    return static_cast<std::uint64_t>(memory(tensor).data - mapped_.data);
}

Span StagedDirectory::memory(std::size_t tensor) const {
    return tensors_.at(tensor);
}

void StagedDirectory::note(const std::string& text) const {
    const fs::path path = path_ / fmt::format("{}{:x}", kNote, std::hash<std::string>()(text));
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) throw Error(fmt::format("cannot write {}", path.string()));
}

bool is_staged_directory(const fs::path& path) {
    return path.filename().string().starts_with(kPrefix);
}

void LeftNote::forget() const {
    std::error_code ignored;
    fs::remove(file, ignored);
    if (notes_in(file.parent_path()).empty()) fs::remove_all(file.parent_path(), ignored);
}

std::vector<LeftNote> sweep_staged_directories(const fs::path& root) {
    std::vector<LeftNote> notes;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
        if (!is_left_over(entry.path().filename())) continue;
        const std::vector<LeftNote> left = notes_in(entry.path());
        if (left.empty()) {
            fs::remove_all(entry.path(), error);
        } else {
            fs::remove(entry.path() / kWeights, error);
            notes.insert(notes.end(), left.begin(), left.end());
        }
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
