// The bytes of a file as they were when this host read it, in sealed memory: nobody can change or shorten
// them, whoever writes to the file, and the ranks of a host map one copy.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/file_descriptor.h"

namespace tandem::trainer {

class FileCopy {
  public:
    // The copy of this file that lives in this process, or a new one, which it reads whole. Thread-safe.
    // Throws ConfigError: cannot be read, is no file, is written to while it is read.
    static std::shared_ptr<const FileCopy> of(const std::string& file);
    // The copy that another process of this host has and calls announced(); of(file) gives it while it lives.
    // Throws BadInput when that is no sealed memory of this user, SystemError when it cannot be reached.
    static std::shared_ptr<const FileCopy> shared(const std::string& file, const std::string& announced);
    ~FileCopy();
    FileCopy(const FileCopy&) = delete;
    FileCopy& operator=(const FileCopy&) = delete;

    std::string_view text() const { return text_; }
    std::string announced() const;  // "/proc/PID/fd/FD": for processes of this host, while this object lives

  private:
    explicit FileCopy(FileDescriptor memory);

    FileDescriptor memory_;
    std::string_view text_;  // the mapping
};

}  // namespace tandem::trainer
