// A folder of this process where everybody may write (/dev/shm, /tmp), and what is left of one whose process has ended.
// Neighbours can foresee no name, and what they put there is neither believed nor followed: a folder that was left is
// opened once, must be this user's alone, and everything after that goes by its descriptor.
//
//   ROOT/PREFIXxxxxxx/         mode 0700
//                    lock      locked while its process lives, whatever PID namespace that is in
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/file_descriptor.h"

namespace tandem {

class OwnedFolder {
  public:
    // Throws SystemError.
    OwnedFolder(const std::filesystem::path& root, std::string_view prefix);
    ~OwnedFolder();  // removes it with what is in it, but not folders, unless it was left
    OwnedFolder(const OwnedFolder&) = delete;
    OwnedFolder& operator=(const OwnedFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    // A file that is new. Throws SystemError.
    FileDescriptor create(const std::string& name) const;
    void write(const std::string& name, std::string_view text) const;
    void remove(const std::string& name) const noexcept;
    void leave() noexcept { stays_ = true; }  // for left_folders, once this process has ended

  private:
    std::filesystem::path path_;
    FileDescriptor folder_, lock_;
    bool stays_ = false;
};

// Of a process of this user's that has ended. Several processes may hold one at a time.
class LeftFolder {
  public:
    const std::filesystem::path& path() const { return path_; }
    std::vector<std::string> names() const;  // of what is in it; at most 10,000
    // A regular file of this user's, of at most `limit` bytes; nothing where it is anything else.
    std::optional<std::string> read(const std::string& name, std::size_t limit = 4096) const;
    // Since it was made; seconds of the wall clock.
    std::int64_t age_s() const;
    void remove(const std::string& name) const noexcept;
    void remove_all() const noexcept;  // the folder too

  private:
    friend std::optional<LeftFolder> left_folder(const std::filesystem::path& folder);
    std::filesystem::path path_;
    FileDescriptor folder_, lock_;
};

// Nothing where it is not there, of another user, open to others, or of a process that lives.
std::optional<LeftFolder> left_folder(const std::filesystem::path& folder);
// All of ROOT/PREFIX…
std::vector<LeftFolder> left_folders(const std::filesystem::path& root, std::string_view prefix);

// ROOT/NAME, made where it is not there: a folder of this user's alone, for files whose names others know. Nothing where
// somebody else has taken the name.
FileDescriptor private_folder(const std::filesystem::path& folder);

}  // namespace tandem
