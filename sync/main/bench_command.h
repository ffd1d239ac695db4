// `tandem-sync bench`: starts trainer ranks and engine-side processes with real receivers, and prints what an
// update costs.
#pragma once

#include <string>
#include <vector>

#include "sync/bench/bench_options.h"

namespace CLI {
class App;
}

namespace tandem::sync {

struct BenchArguments {
    BenchOptions options;
    bool json = false;
    std::string html;  // a file
};

void add_options(CLI::App& app, BenchArguments& arguments);

// Return the exit code. `command_line` is this program's own, which starts itself again with the subcommands
// bench-rank and bench-engine.
int bench_command(const BenchArguments& arguments, const std::vector<std::string>& command_line);
int bench_rank(const BenchOptions& options);

}  // namespace tandem::sync
