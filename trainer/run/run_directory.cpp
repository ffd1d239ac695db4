#include "trainer/run/run_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/error.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/training.h"

namespace tandem::trainer {

namespace fs = std::filesystem;

RunDirectory::RunDirectory(const std::string& output, const std::string& name, Earlier earlier)
    : name_(name),
      final_path_(output + "/" + name),
      path_(final_path_ + ".partial"),
      lock_file_(output + "/." + name + ".lock") {
    std::error_code error;
    fs::create_directories(output, error);
    if (error) throw SystemError("create folder " + output, error.value());
    lock();
    if (earlier == Earlier::keep_checkpoints) {
        keep_checkpoints();
        return;
    }
    fs::remove_all(path_, error);
    if (error || !fs::create_directory(path_, error))
        throw SystemError("create folder " + path_, error.value());
}

RunDirectory::~RunDirectory() {
    if (lock_fd_ < 0) return;
    ::unlink(lock_file_.c_str());
    ::close(lock_fd_);
}

// One process per name. The lock ends with the process, however that ends; the file is only its handle. Since
// a finished run unlinks it, the lock counts only while the name still leads to the file that is locked.
void RunDirectory::lock() {
    while (true) {
        const int fd = ::open(lock_file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) throw SystemError("create " + lock_file_, errno);
        if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
            ::close(fd);
            throw ConfigError("command line", "run.name",
                              fmt::format("a run named '{}' is in progress; choose another name", name_));
        }
        struct stat held {
        }, named{};
        if (::fstat(fd, &held) == 0 && ::stat(lock_file_.c_str(), &named) == 0 &&
            held.st_ino == named.st_ino) {
            lock_fd_ = fd;
            return;
        }
        ::close(fd);
    }
}

void RunDirectory::keep_checkpoints() const {
    std::vector<fs::path> others;
    for (const auto& entry : fs::directory_iterator(path_)) {
        if (entry.path().filename() != "checkpoints") others.push_back(entry.path());
    }
    for (const fs::path& path : others) fs::remove_all(path);
    clean_up_checkpoints(path_ + "/checkpoints");
}

void RunDirectory::write(const std::string& file, const std::string& text) const {
    std::ofstream out(path_ + "/" + file);
    out << text;
    if (!out.flush()) throw SystemError("write " + path_ + "/" + file, errno);
}

void RunDirectory::publish() {
    fs::remove_all(final_path_ + ".old");  // of a run that was killed while it published
    sync_tree(path_);
    replace_folder(path_, final_path_);
    path_ = final_path_;
}

}  // namespace tandem::trainer
