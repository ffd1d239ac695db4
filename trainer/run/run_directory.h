// The folder of one run. A run works in OUTPUT/NAME.partial and takes the name OUTPUT/NAME when it has
// succeeded, so a folder with a run's name is always whole, and a failed run never costs the results of an
// earlier one.
#pragma once

#include <string>

namespace tandem::trainer {

class RunDirectory {
  public:
    // What becomes of the working folder that an earlier run of this name left: it goes, all but its whole
    // checkpoints goes (they are resumed from), or it is kept as NAME.partial.1, .2, ….
    enum class Earlier { remove, keep_checkpoints, keep };
    // Creates the working folder. Throws ConfigError when a run of this name is in progress, SystemError when
    // the folder cannot be made.
    RunDirectory(const std::string& output, const std::string& name, Earlier earlier = Earlier::remove);
    ~RunDirectory();
    RunDirectory(const RunDirectory&) = delete;
    RunDirectory& operator=(const RunDirectory&) = delete;

    const std::string& path() const { return path_; }  // the working folder; after publish() the final one
    void write(const std::string& file, const std::string& text) const;  // throws SystemError
    // Gives the working folder the name OUTPUT/NAME, once all of it is on the disk. What had that name is
    // replaced at one moment, or gets the name OUTPUT/NAME.1, .2, … first, which is returned.
    enum class Finished { replace, keep };
    std::string publish(Finished finished);

  private:
    bool lock();  // false: a run of this name has it
    void keep_checkpoints() const;
    void clean_up() const;
    void replace();

    std::string final_path_;
    std::string path_;
    std::string replaced_path_;  // where a replaced run goes for the moment that its removal takes
    std::string removed_path_;   // and where an unfinished one goes
    std::string lock_file_;
    int lock_fd_ = -1;
};

// Throws ConfigError when a run of this name is in progress, whose folder is then not what an earlier one left. Makes nothing.
void require_not_in_progress(const std::string& output, const std::string& name);

// Renames FOLDER to FOLDER.N, N being one more than the largest number that is there; returns the new name.
// Throws SystemError.
std::string set_aside(const std::string& folder);

}  // namespace tandem::trainer
