// The subcommands of tandem-sync: what each is asked for, its flags, which fill that, and the command, which returns the
// exit code.
#pragma once

#include <string>
#include <vector>

#include "sync/bench/bench_options.h"
#include "sync/bench/plan_report.h"
#include "sync/push/push.h"

namespace CLI {
class App;
}

namespace tandem::sync {

// bench: starts trainer ranks and engine-side processes with real receivers, and prints what an update costs.
struct BenchArguments {
    BenchOptions options;
    bool json = false;
    std::string html;  // a file
};
void add_options(CLI::App& app, BenchArguments& arguments);
// `command_line` is this program's own, which starts itself again with the two that follow.
int bench_command(const BenchArguments& arguments, const std::vector<std::string>& command_line);
int bench_rank(const BenchOptions& options);
// An engine rank that holds weights and computes nothing. Prints where its receiver listens, then serves until standard
// input ends. To each line of input it answers with one: {"version": N, "tensors": {NAME: XXH3-128 of its bytes and of
// the zeros behind them}} of what it reads now (weights of the CPU only). Ask while no push is under way.
int bench_engine(const BenchOptions& options, int rank);

// plan: which bytes would travel from a trainer's layout to an engine's.
struct PlanArguments {
    PlanReportOptions options;  // but the dtypes
    std::string source_dtype = "bfloat16";
    std::string engine_dtype = "bfloat16";
    bool json = false;
};
void add_options(CLI::App& app, PlanArguments& arguments);
int plan_command(PlanArguments arguments);

// push: a Hugging Face directory, or the newest of a folder of them, into running inference servers.
struct PushArguments {
    PushOptions options;
    double deadline_s = 120;
    std::vector<std::string> key_files;  // FILE, SERVER=FILE
    std::vector<std::string> only;       // patterns
    bool abort_running = false;
    std::string in_flight = "wait";
    bool verify = false;
    bool no_probe = false;
    bool finite = false;
    bool json = false;
    // Instead of options.model:
    std::string watch;  // a folder of versions (sync/watch/version_folders.h)
    std::string pattern = "*";
    std::string marker;
    double rest_s = 2;
    bool once = false;
    bool rollback = false;
};
void add_options(CLI::App& app, PushArguments& arguments);
int push_command(PushArguments arguments);
int watch_command(PushArguments arguments);  // of a folder

}  // namespace tandem::sync
