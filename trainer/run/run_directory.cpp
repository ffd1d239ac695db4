#include "trainer/run/run_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/training.h"

namespace tandem::trainer {

namespace fs = std::filesystem;

namespace {

std::string lock_file_of(const std::string& output, const std::string& name) {
    return output + "/." + name + ".lock";
}

[[noreturn]] void refuse_in_progress(const std::string& output, const std::string& name) {
    throw ConfigError("command line", "run.name",
                      fmt::format("a run named '{}' is in progress in {}/{}.partial; choose another name, or "
                                  "wait for its end",
                                  name, output, name));
}

}  // namespace

void require_not_in_progress(const std::string& output, const std::string& name) {
    const FileDescriptor lock(::open(lock_file_of(output, name).c_str(), O_RDONLY | O_CLOEXEC));
    if (lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        refuse_in_progress(output, name);
}

RunDirectory::RunDirectory(const std::string& output, const std::string& name, Earlier earlier)
    : final_path_(output + "/" + name),
      path_(final_path_ + ".partial"),
      replaced_path_(output + "/." + name + ".replaced"),
      removed_path_(output + "/." + name + ".removed"),
      lock_file_(lock_file_of(output, name)) {
    std::error_code error;
    fs::create_directories(output, error);
    if (error) throw SystemError("create folder " + output, error.value());
    if (!lock()) refuse_in_progress(output, name);
    clean_up();
    if (earlier == Earlier::keep_checkpoints) {
        keep_checkpoints();
        return;
    }
    if (earlier == Earlier::keep && fs::exists(path_)) set_aside(path_);
    // By another name, so that a folder that is half removed is nobody's run.
    if (fs::exists(path_)) fs::rename(path_, removed_path_, error);
    if (!error) fs::remove_all(removed_path_, error);
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
bool RunDirectory::lock() {
    while (true) {
        const int fd = ::open(lock_file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) throw SystemError("create " + lock_file_, errno);
        if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
            ::close(fd);
            return false;
        }
        struct stat held {
        }, named{};
        if (::fstat(fd, &held) == 0 && ::stat(lock_file_.c_str(), &named) == 0 &&
            held.st_ino == named.st_ino) {
            lock_fd_ = fd;
            return true;
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

// Of a run that was killed while it removed or replaced an earlier one.
void RunDirectory::clean_up() const {
    fs::remove_all(removed_path_);
    if (!fs::exists(replaced_path_)) return;
    if (fs::exists(final_path_)) {
        fs::remove_all(replaced_path_);
    } else {
        fs::rename(replaced_path_, final_path_);
    }
}

std::string RunDirectory::publish(Finished finished) {
    sync_tree(path_);
    std::string kept;
    if (finished == Finished::keep && fs::exists(final_path_)) kept = set_aside(final_path_);
    if (kept.empty() && fs::exists(final_path_)) {
        replace();
    } else {
        fs::rename(path_, final_path_);
    }
    sync_folder(fs::path(final_path_).parent_path().string());
    fs::remove_all(replaced_path_);
    path_ = final_path_;
    return kept;
}

// Folders that a user may have named (NAME.old) are not touched.
void RunDirectory::replace() {
    const bool swapped =
        ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_path_.c_str(), RENAME_EXCHANGE) == 0;
    fs::rename(swapped ? path_ : final_path_, replaced_path_);
    if (!swapped) fs::rename(path_, final_path_);  // the file system cannot swap two names
}

namespace {

// FOLDER.7, FOLDER.7.partial -> 7 for FOLDER; 0: another name.
std::int64_t number_after(const std::string& entry, const std::string& folder) {
    if (!entry.starts_with(folder + ".")) return 0;
    const std::string rest =
        entry.substr(folder.size() + 1, entry.find('.', folder.size() + 1) - folder.size() - 1);
    const bool digits =
        !rest.empty() && rest.size() < 10 && rest.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::stoll(rest) : 0;
}

}  // namespace

std::string set_aside(const std::string& folder) {
    const fs::path path(folder);
    std::int64_t number = 0;
    for (const auto& entry : fs::directory_iterator(path.parent_path().empty() ? "." : path.parent_path()))
        number = std::max(number, number_after(entry.path().filename(), path.filename()));
    while (true) {
        const std::string name = fmt::format("{}.{}", folder, ++number);
        if (::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE) == 0) return name;
        if (errno == EEXIST) continue;
        if (errno != EINVAL && errno != ENOSYS) throw SystemError("rename " + folder + " to " + name, errno);
        if (fs::exists(name)) continue;  // the file system knows no RENAME_NOREPLACE
        fs::rename(folder, name);
        return name;
    }
}

}  // namespace tandem::trainer
