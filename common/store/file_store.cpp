// A store in a directory: one file a key, replaced by rename, so a reader sees a whole value or none. For
// ranks that share a file system; the directory is the caller's to remove.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "common/error.h"
#include "common/store/store.h"

namespace tandem {
namespace {

// Holds the directory's lock; the kernel drops it when the process dies.
class DirectoryLock {
  public:
    explicit DirectoryLock(const std::filesystem::path& directory)
        : fd_(::open((directory / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
        if (fd_ < 0) throw SystemError("open of " + (directory / ".lock").string(), errno);
        while (::flock(fd_, LOCK_EX) != 0) {
            if (errno == EINTR) continue;
            const int error = errno;
            ::close(fd_);
            throw SystemError("flock of " + (directory / ".lock").string(), error);
        }
    }
    ~DirectoryLock() { ::close(fd_); }
    DirectoryLock(const DirectoryLock&) = delete;
    DirectoryLock& operator=(const DirectoryLock&) = delete;

  private:
    int fd_;
};

class FileStore final : public Store {
  public:
    explicit FileStore(std::string directory) : directory_(std::move(directory)) {
        std::error_code error;
        std::filesystem::create_directories(directory_, error);
        if (error) throw SystemError("mkdir of " + directory_.string(), error.value());
    }

    void set(const std::string& key, const std::string& value) override {
        const DirectoryLock lock(directory_);
        write(key, value);
    }

    std::string get(const std::string& key, Deadline deadline) override {
        for (auto pause = std::chrono::milliseconds(1);;
             pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
            if (auto value = read(key)) return *value;
            if (deadline.passed()) {
                throw DeadlineExceeded("file store " + directory_.string(), "get",
                                       "nobody has set '" + key + "'");
            }
            std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.left()));
        }
    }

    std::int64_t add(const std::string& key, std::int64_t amount) override {
        const DirectoryLock lock(directory_);
        const std::int64_t sum = parse_store_integer(key, read(key).value_or("")) + amount;
        write(key, std::to_string(sum));
        return sum;
    }

  private:
    // Any key becomes a plain file name: other characters than letters, digits and '_' as %XX.
    std::filesystem::path path(const std::string& key) const {
        std::string name = "key_";
        for (const char c : key) {
            const auto byte = static_cast<unsigned char>(c);
            name += std::isalnum(byte) != 0 || c == '_' ? std::string(1, c) : fmt::format("%{:02x}", byte);
        }
        return directory_ / name;
    }

    std::optional<std::string> read(const std::string& key) const {
        std::ifstream file(path(key), std::ios::binary);
        if (!file) return std::nullopt;
        return std::string(std::istreambuf_iterator<char>(file), {});
    }

    void write(const std::string& key, const std::string& value) const {
        const std::filesystem::path target = path(key);
        const std::filesystem::path fresh = directory_ / ".new";  // one writer at a time: the lock is held
        {
            std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
            file.write(value.data(), static_cast<std::streamsize>(value.size()));
            file.close();
            if (!file) throw SystemError("write of " + fresh.string(), errno);
        }
        std::filesystem::rename(fresh, target);
    }

    std::filesystem::path directory_;
};

}  // namespace

std::shared_ptr<Store> make_file_store(const std::string& directory) {
    return std::make_shared<FileStore>(directory);
}

}  // namespace tandem
