// `tandem-sync push`: a Hugging Face directory into running inference servers.
#pragma once

#include <string>
#include <vector>

#include "sync/push/push.h"

namespace CLI {
class App;
}

namespace tandem::sync {

struct PushArguments {
    PushOptions options;
    double deadline_s = 120;
    std::string key_file;
    std::vector<std::string> only;  // patterns
    bool abort_running = false;
    bool verify = false;
    bool json = false;
};

void add_options(CLI::App& app, PushArguments& arguments);
int push_command(PushArguments arguments);  // returns the exit code

}  // namespace tandem::sync
