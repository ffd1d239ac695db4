// The folder of one run. A run works in OUTPUT/NAME.partial and takes the name OUTPUT/NAME when it has
// succeeded, so a folder with a run's name is always whole, and a failed run never costs the results of an
// earlier one.
#pragma once

#include <string>

namespace tandem::trainer {

class RunDirectory {
  public:
    // Creates the working folder; removes what an earlier, failed run left there, but keeps its whole
    // checkpoints when they are to be resumed from. Throws ConfigError when a run of this name is in
    // progress, SystemError when the folder cannot be made.
    enum class Earlier { remove, keep_checkpoints };
    RunDirectory(const std::string& output, const std::string& name, Earlier earlier = Earlier::remove);
    ~RunDirectory();
    RunDirectory(const RunDirectory&) = delete;
    RunDirectory& operator=(const RunDirectory&) = delete;

    const std::string& path() const { return path_; }  // the working folder; after publish() the final one
    void write(const std::string& file, const std::string& text) const;  // throws SystemError
    // Replaces OUTPUT/NAME with the working folder, at one moment, once all of it is on the disk.
    void publish();

  private:
    void lock();
    void keep_checkpoints() const;

    std::string name_;
    std::string final_path_;
    std::string path_;
    std::string lock_file_;
    int lock_fd_ = -1;
};

}  // namespace tandem::trainer
