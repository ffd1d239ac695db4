// The engine that a run starts for itself: a child process behind HTTP. It ends with this object, and with
// this process should that one be killed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/process/child_process.h"

namespace tandem::trainer {

class EngineProcess {
  public:
    // Starts `command` with --ready-file and --parent-pid added, a random API key by a descriptor and its
    // output in `log_file`, and waits until it serves. Throws Error with the last lines of the log when it
    // ends before that, DeadlineExceeded when it takes too long.
    EngineProcess(std::vector<std::string> command, const std::string& log_file, Deadline deadline);
    ~EngineProcess();  // SIGTERM, and SIGKILL after three seconds
    EngineProcess(const EngineProcess&) = delete;
    EngineProcess& operator=(const EngineProcess&) = delete;

    const std::string& url() const { return url_; }
    const std::string& api_key() const { return api_key_; }
    // "engine http://… was killed by signal 9 (Killed)", or empty while it runs. Does not block.
    std::string ended();

  private:
    void wait_until_ready(const std::string& ready_file, Deadline deadline);
    void stop();
    std::string log_tail() const;

    std::string log_file_;
    std::string url_;
    const std::string api_key_;
    std::optional<ChildProcess> child_;
    std::string ended_;
};

}  // namespace tandem::trainer
