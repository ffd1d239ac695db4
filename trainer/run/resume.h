// The checkpoint that a run resumes from, and whether it may.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/config/config.h"

namespace tandem::trainer {

// Whether a resumed run may have another value of a key: it says where and how fast, or how long, but not
// what is learned.
bool may_change_at_resume(const std::string& key);

nlohmann::ordered_json value_of(const config::Key& key);

// The configuration as a checkpoint keeps it: dotted key -> value.
nlohmann::ordered_json config_json(const config::Schema& schema);

// Turns run.resume, a run's folder, a checkpoint's, or "newest", into the folder of one checkpoint whose
// every byte was checked; empty stays empty. In a run's folder the newest checkpoint is taken that is whole and
// holds no infinities or NaN but those of model.path, with a warning about each newer one that is not. Throws
// ConfigError when there is none, when a checkpoint that was named is damaged or not finite, when it was written by another model or algorithm (then naming the key), and when
// starting would wipe out the checkpoints of a run of this name that did not end. Writes nothing.
void resolve_resume(RunConfig& config, const config::Schema& schema);

// True when run.resume is in the working folder that a crash left of this run: the run then continues in that
// folder.
bool resumes_in_place(const RunConfig& config);

}  // namespace tandem::trainer
