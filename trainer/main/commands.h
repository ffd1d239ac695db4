// tandem-train: its command line, and the commands that need a configuration.
#pragma once

#include <string>
#include <vector>

namespace tandem::trainer {

// The flags, the help, and the command that they choose (command_line.cpp). Returns the exit code; throws what
// the command throws.
int run_command_line(int argc, char** argv);

struct Arguments {
    std::string config_file;
    std::vector<std::string> overrides;
    bool resume = false;
    bool resume_or_start = false;
    bool json = false;
    std::string key;            // explain
    std::string run_directory;  // rank, report
    std::string engine_url;     // rank
};

// Each returns the exit code.
int train(const Arguments& arguments);
// One of the ranks that train() starts; the folder's config.toml has been checked already.
int rank(const Arguments& arguments);
int inspect_memory(const Arguments& arguments);
int explain(const Arguments& arguments);
// Of a finished run, or of one that is not (NAME.partial), which the page and stdout say.
int report(const Arguments& arguments);

}  // namespace tandem::trainer
