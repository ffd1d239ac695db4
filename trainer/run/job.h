// A whole run on this host: its folder, its engine, its ranks, the watch over them, and the results.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trainer/checkpoint/room.h"
#include "trainer/config/config.h"
#include "trainer/run/data_files.h"
#include "trainer/run/engine_process.h"
#include "trainer/run/run_directory.h"

namespace tandem::trainer {

// The folder and the engine of a run, which exist before its first rank. Made once a run: by the parent of
// the ranks, or by rank 0 under torchrun.
struct RunSetup {
    std::unique_ptr<RunDirectory> directory;
    RunDirectory::Finished finished_before = RunDirectory::Finished::keep;
    RoomWait room;                          // for the report
    std::unique_ptr<EngineProcess> engine;  // null when engine.url is given
    std::string engine_url;
};
// `program_directory` holds tandem-engine. Throws ConfigError when it is missing or the run cannot begin,
// before anything is written.
RunSetup set_up_run(const RunConfig& config, const config::Schema& schema,
                    const std::string& program_directory);

// Starts the ranks as `rank_command` + (run folder, engine URL), with the data's environment, and waits for
// them. Returns 0, or 1 after saying on stderr who failed. Ctrl-C, SIGTERM, SIGHUP and SIGQUIT end the job in
// order.
int run_ranks(const RunConfig& config, RunSetup& setup, const DataFiles& data,
              const std::vector<std::string>& rank_command);

// Ends the engine, merges the trace, writes the report, gives the folder its name, and prints the results.
void finish(RunSetup& setup, bool json);

// What a finished run's summary.json says, to stdout; the summary itself when `json`.
void print_results(const std::string& run_directory, bool json);

}  // namespace tandem::trainer
