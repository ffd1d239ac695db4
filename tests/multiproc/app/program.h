// Runs the real programs as a user would: command line in, exit code, stdout and stderr out.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/process/child_process.h"
#include "tests/support/eventually.h"

namespace tandem::test {

// A fresh folder that goes with the object.
class Folder {
  public:
    Folder();
    ~Folder();
    std::string path() const { return path_.string(); }
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    bool empty() const { return std::filesystem::is_empty(path_); }

  private:
    std::filesystem::path path_;
};

std::string read_file(const std::string& file);
// metrics.jsonl of a run, a line each, without what a clock or an allocator says.
std::vector<nlohmann::json> timeless_metrics(const std::string& run);

class Program {
  public:
    // argv[0] is a program of this build, "tandem-train". environment: "KEY=value", added to the test's.
    explicit Program(const std::vector<std::string>& command,
                     const std::vector<std::string>& environment = {});
    int wait(std::chrono::seconds limit =
                 std::chrono::seconds(60));  // exit code, or -signal; fails the test when late
    bool running() const { return !child_->ended(); }
    void kill(int signal) const { child_->signal(signal); }
    pid_t pid() const { return child_->pid(); }
    std::string out() const { return read_file(out_); }
    std::string err() const { return read_file(err_); }

    // Direct children by what they are: "rank 0" … and "engine".
    std::map<std::string, pid_t> children() const;

  private:
    Folder folder_;
    std::string out_, err_;
    std::optional<ChildProcess> child_;  // killed with this object
};

bool alive(pid_t pid);  // a zombie is not
// Waits until the run "tiny" in `folder` is in the middle of its reinforcement; false: it never was.
bool reinforces(const Folder& folder);
void expect_all_end(const std::map<std::string, pid_t>& processes,
                    std::chrono::seconds limit = std::chrono::seconds(5));

// A tiny run: seconds, not minutes. `more` are further --set values.
std::vector<std::string> tiny_run(const std::string& output, const std::vector<std::string>& more = {});

}  // namespace tandem::test
