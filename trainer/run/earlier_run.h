// What an earlier run of the same name left, and what becomes of it: nothing that is finished, and nothing
// that this run reads from, goes because a command was typed again.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/config/config.h"
#include "trainer/run/run_directory.h"

namespace tandem::trainer {

// For --resume-or-start. unfinished: there is a checkpoint to go on from; finished: it has done its steps.
enum class Standing { none, unfinished, finished };
// Throws ConfigError when the finished run of this name learned something else than is asked for now.
Standing standing_of(const RunConfig& config, const config::Schema& schema);

// True when run.resume, as resolve_resume has left it, is the end of the finished run of this name: there is
// nothing to do.
bool is_at_its_end(const RunConfig& config);

// Throws ConfigError, before anything is written, when starting or finishing would remove a finished run
// without run.if_exists = overwrite, or, whatever that says, a folder that model.path, loss.reference or
// [data] points into. Sets run.if_exists for a run that goes on: it takes the place of the run that it
// continues.
void check_earlier_run(RunConfig& config, const config::Schema& schema);

// What the working folder's and the finished run's fate is, after check_earlier_run.
RunDirectory::Earlier fate_of_working_folder(const RunConfig& config);
RunDirectory::Finished fate_of_finished_run(const RunConfig& config);

}  // namespace tandem::trainer
