// Files that survive a crash: written at offsets, pushed to the disk, and moved into place as a whole folder.
// Every failure is a SystemError that names the file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/device/device.h"

namespace tandem::trainer {

class OutputFile {
  public:
    enum class Open { create, existing };  // create: an empty file, in place of what was there
    OutputFile(std::string path, Open open);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void resize(std::size_t bytes);
    void write_at(std::size_t offset, ConstSpan bytes);
    void write_at(std::size_t offset, std::string_view text);
    void sync();  // to the disk, and closes

  private:
    std::string path_;
    int fd_ = -1;
};

void write_durably(const std::string& file, std::string_view text);
void sync_folder(const std::string& folder);  // its entries: what was created, renamed or removed in it
void sync_tree(const std::string& folder);    // every file and folder in it

// Gives `from` the name `to`, beside it, in one step; the folder that had that name is removed afterwards.
// (Where a file system cannot swap two names, a crash in between leaves the earlier one as `to`.old.)
void replace_folder(const std::string& from, const std::string& to);

}  // namespace tandem::trainer
