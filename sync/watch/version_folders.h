// The versions that a trainer writes into one folder, each a Hugging Face directory of its own: which is the newest that is
// whole. Any program that saves checkpoints is such a trainer.
//
// A folder's version is the number at the end of its name (step_120, weight_v000012, checkpoint-500); one without is
// counted, above all before it. It is whole when every file that its index names (or model.safetensors) is as long as its
// header says, and
//   with a marker: that file is there
//   without:       the folder was renamed to its name while it was watched, or nothing in it has changed for a while
// Hidden folders, links, and names that begin with "tmp" or "_", or end with .tmp, .part, .partial or .incomplete, are
// somebody's unfinished business.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/file_descriptor.h"
#include "sync/push/directory_source.h"

namespace tandem::sync {

struct WatchedFolder {
    std::string directory = {};
    std::string pattern = "*";  // of names, as in a shell
    std::string marker = {};    // a file's name; empty: none is written
    std::chrono::milliseconds rest{2000};
    bool rollback = false;  // what is written last is the newest, whatever its number
};

struct Version {
    std::string name, path;
    std::int64_t number = 0;  // from 1 on
    std::shared_ptr<const DirectoryWeights> weights = {};
};

// "step_120" → 120; nothing where it ends with no digit.
std::optional<std::uint64_t> number_in(const std::string& name);

// Used by one thread.
class VersionFolders {
  public:
    using Tell = std::function<void(const std::string& text)>;
    using Open = std::function<std::shared_ptr<const DirectoryWeights>(const std::string& path)>;
    // tell: what its user should know of a folder, each once. open: throws ConfigError where it is not whole. Throws
    // ConfigError: there is no such folder.
    VersionFolders(WatchedFolder watched, Tell tell, Open open);

    // Folders without a number are versions above this one: that servers have already.
    void count_from(std::int64_t version) { counted_ = std::max(counted_, version); }
    // Blocks until something may have changed, or that long.
    void wait(std::chrono::milliseconds longest);
    // The newest whole version, where it is newer than the one that was returned last.
    std::optional<Version> look();
    // The files of what was returned last were written to while they were read: it is to be whole once more.
    void forget(const Version& version);
    // Of the newest that is not whole: "step_7: …" and why; empty: there is none.
    const std::string& unfinished() const { return unfinished_; }

  private:
    using Clock = std::chrono::steady_clock;
    struct Trace {
        std::string all;             // of the folder's files: another text after any write
        std::string weights;         // the same of those that are pushed
        std::int64_t newest_ns = 0;  // when the last write was, since 1970
    };
    struct Folder {
        std::string name;
        std::optional<std::uint64_t> number;
        Trace trace;
        Clock::time_point since;  // that it has been so
        std::string failed_as;    // all, when it could not be opened
        std::string why;          // it is not whole
        bool passed = false;      // it was returned, or a newer one was
    };

    static Trace trace_of(const std::string& path);
    void read_events();
    void list();
    bool was_pushed(const Folder& folder) const;
    bool may_follow(const Folder& folder) const;
    std::vector<Folder*> newest_first();
    bool rests(const Folder& folder) const;
    std::shared_ptr<const DirectoryWeights> open_whole(Folder& folder);
    void refuse(Folder& folder);
    Version pass(Folder& folder, std::shared_ptr<const DirectoryWeights> weights);
    std::string path_of(const Folder& folder) const { return watched_.directory + "/" + folder.name; }

    WatchedFolder watched_;
    Tell tell_;
    Open open_;
    FileDescriptor events_;  // inotify's; none: renames are not seen, and writing is found by looking
    std::set<std::string> moved_in_;
    std::map<std::string, Folder> folders_;
    std::map<std::string, std::string> pushed_;  // name → Trace::weights
    std::int64_t newest_ = 0;                    // version that was returned last
    std::int64_t counted_ = 0;
    bool began_ = false;  // something was returned
    Clock::time_point made_ = Clock::now();
    std::string unfinished_;
};

}  // namespace tandem::sync
