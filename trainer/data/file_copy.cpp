#include "trainer/data/file_copy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/device/announced_memory.h"
#include "common/error.h"

namespace tandem::trainer {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
constexpr int kReadings = 3;
constexpr std::chrono::milliseconds kBetweenReadings{50};
constexpr int kNoChange = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

// What of(file) gives, by the file's absolute path.
struct LivingCopies {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<const FileCopy>> by_path;
};
LivingCopies& living_copies() {
    static LivingCopies copies;
    return copies;
}

struct stat status_of_input(const FileDescriptor& input, const std::string& file) {
    struct stat status {};
    if (::fstat(input.get(), &status) != 0) throw SystemError("fstat of " + file, errno);
    return status;
}

bool same_moment(const struct stat& a, const struct stat& b) {
    return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
           a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

void write_whole(const FileDescriptor& memory, const char* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t written = ::write(memory.get(), data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) throw SystemError("write of a copy in memory", written < 0 ? errno : ENOSPC);
        data += written;
        bytes -= static_cast<std::size_t>(written);
    }
}

void copy_whole(const FileDescriptor& input, const FileDescriptor& memory, const std::string& file) {
    std::vector<char> block(kReadAtOnce);
    while (true) {
        const ssize_t got = ::read(input.get(), block.data(), block.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw ConfigError(file, "", fmt::format("cannot be read: {}", std::strerror(errno)));
        if (got == 0) return;
        write_whole(memory, block.data(), static_cast<std::size_t>(got));
    }
}

// Sealed memory with the file's bytes; none: it was written to meanwhile.
std::optional<FileDescriptor> read_once(const std::string& file) {
    const FileDescriptor input(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!input) throw ConfigError(file, "", fmt::format("cannot be read: {}", std::strerror(errno)));
    const struct stat before = status_of_input(input, file);
    if (!S_ISREG(before.st_mode)) throw ConfigError(file, "", "cannot be read: is not a file");
    FileDescriptor memory(::memfd_create("tandem:file", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory) throw SystemError("memfd_create", errno);
    copy_whole(input, memory, file);
    if (!same_moment(before, status_of_input(input, file))) return std::nullopt;
    if (::fcntl(memory.get(), F_ADD_SEALS, kNoChange | F_SEAL_SEAL) != 0)
        throw SystemError("sealing a copy of " + file, errno);
    return memory;
}

FileDescriptor read_between_writes(const std::string& file) {
    for (int reading = 0; reading < kReadings; ++reading) {
        if (reading > 0) std::this_thread::sleep_for(kBetweenReadings);
        if (auto memory = read_once(file)) return std::move(*memory);
    }
    throw ConfigError(file, "", "is written to while it is read; start when it is complete");
}

}  // namespace

FileCopy::FileCopy(FileDescriptor memory) : memory_(std::move(memory)) {
    struct stat status {};
    if (::fstat(memory_.get(), &status) != 0) throw SystemError("fstat of a copy in memory", errno);
    const auto bytes = static_cast<std::size_t>(status.st_size);
    if (bytes == 0) return;
    // Private, for a shared mapping might be made writable, which seals do not allow.
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, memory_.get(), 0);
    if (data == MAP_FAILED) throw SystemError("mmap of a copy in memory", errno);
    ::madvise(data, bytes, MADV_DONTDUMP);
    text_ = {static_cast<const char*>(data), bytes};
}

FileCopy::~FileCopy() {
    if (!text_.empty()) ::munmap(const_cast<char*>(text_.data()), text_.size());
}

std::string FileCopy::announced() const {
    return announced_path(memory_.get());
}

std::shared_ptr<const FileCopy> FileCopy::of(const std::string& file) {
    const std::string path = std::filesystem::absolute(file).string();
    LivingCopies& copies = living_copies();
    const std::lock_guard lock(copies.mutex);
    if (auto there = copies.by_path[path].lock()) return there;
    const std::shared_ptr<const FileCopy> made(new FileCopy(read_between_writes(file)));
    copies.by_path[path] = made;
    return made;
}

std::shared_ptr<const FileCopy> FileCopy::shared(const std::string& file, const std::string& announced) {
    FileDescriptor memory(open_announced(announced));
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    enforce(seals >= 0 && (seals & kNoChange) == kNoChange, "{} is memory that its owner may write to",
            announced);
    const std::shared_ptr<const FileCopy> opened(new FileCopy(std::move(memory)));
    LivingCopies& copies = living_copies();
    const std::lock_guard lock(copies.mutex);
    copies.by_path[std::filesystem::absolute(file).string()] = opened;
    return opened;
}

}  // namespace tandem::trainer
