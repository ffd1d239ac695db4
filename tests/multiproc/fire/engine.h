// The engine under fire: tandem-engine on one port, started anew when it was killed.
#pragma once

#include <memory>
#include <string>

#include "common/process/child_process.h"
#include "tests/multiproc/fire/proxy.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem::fire {

class Engine {
  public:
    // Serves, without weights, and `proxy` forwards to it.
    explicit Engine(Proxy& proxy);

    const std::string& url() const { return url_; }
    int pid() const { return child_->pid(); }
    bool running() const { return !child_->ended(); }
    void signal(int number) const;
    void kill_and_restart();
    int terminate();  // SIGTERM, and waits; the exit code, or 128 + the signal that ended it
    std::string log() const;

  private:
    void start(const std::string& listen);
    int wait() const;

    Proxy& proxy_;
    const model::TemporaryDirectory directory_;
    std::string url_;
    std::unique_ptr<ChildProcess> child_;
};

}  // namespace tandem::fire
