#include "trainer/checkpoint/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "common/error.h"

namespace tandem::trainer {

namespace fs = std::filesystem;

OutputFile::OutputFile(std::string path, Open open) : path_(std::move(path)) {
    const int flags = O_WRONLY | O_CLOEXEC | (open == Open::create ? O_CREAT | O_TRUNC : 0);
    fd_ = ::open(path_.c_str(), flags, 0644);
    if (fd_ < 0) throw SystemError("open " + path_, errno);
}

OutputFile::~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
}

void OutputFile::resize(std::size_t bytes) {
    // Room for all of it, so that a disk that is full says so now. Not every file system can.
    if (bytes > 0 && ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT))
        throw SystemError("resize " + path_, errno);
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw SystemError("resize " + path_, errno);
}

void OutputFile::write_at(std::size_t offset, ConstSpan bytes) {
    while (bytes.bytes > 0) {
        const ssize_t written = ::pwrite(fd_, bytes.data, bytes.bytes, static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) throw SystemError("write " + path_, written < 0 ? errno : ENOSPC);
        offset += static_cast<std::size_t>(written);
        bytes =
            bytes.subspan(static_cast<std::size_t>(written), bytes.bytes - static_cast<std::size_t>(written));
    }
}

void OutputFile::write_at(std::size_t offset, std::string_view text) {
    write_at(offset, ConstSpan{reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

void OutputFile::sync() {
    const int failed = ::fsync(fd_) != 0 ? errno : 0;
    ::close(fd_);
    fd_ = -1;
    if (failed != 0) throw SystemError("sync " + path_, failed);
}

void write_durably(const std::string& file, std::string_view text) {
    OutputFile out(file, OutputFile::Open::create);
    out.write_at(0, text);
    out.sync();
}

namespace {

void sync_path(const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0) throw SystemError("open " + path, errno);
    const int failed = ::fsync(fd) != 0 ? errno : 0;
    ::close(fd);
    if (failed != 0) throw SystemError("sync " + path, failed);
}

}  // namespace

void sync_folder(const std::string& folder) {
    sync_path(folder, O_DIRECTORY);
}

void sync_tree(const std::string& folder) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (entry.is_symlink()) continue;
        if (entry.is_regular_file()) sync_path(entry.path(), 0);
        if (entry.is_directory()) sync_folder(entry.path());
    }
    sync_folder(folder);
}

void replace_folder(const std::string& from, const std::string& to) {
    const std::string old = to + ".old", parent = fs::path(to).parent_path().string();
    sync_folder(from);
    const bool swapped =
        ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0;  // at one moment
    if (!swapped) {  // nothing has that name yet, or the file system cannot
        fs::remove_all(old);
        if (fs::exists(to)) fs::rename(to, old);
        fs::rename(from, to);
    }
    sync_folder(parent.empty() ? "." : parent);
    fs::remove_all(swapped ? from : old);
}

}  // namespace tandem::trainer
