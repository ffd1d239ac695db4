// Files that are mapped while somebody cuts them off: reading what is gone raises SIGBUS, which ends a process.
#pragma once

#include "common/device/memory.h"

namespace tandem::model {

// From here on this process reads zeros there, where the mapping is a Safetensors' (whose changed_file() tells); any other
// SIGBUS ends it as ever. For programs: a signal's action is the whole process's.
void read_zeros_of_truncated_files();

// What is mapped now; more than 1024 at a time are not remembered. Any thread.
void remember_mapping(Span mapped);
void forget_mapping(Span mapped);

}  // namespace tandem::model
