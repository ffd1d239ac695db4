// Files that are mapped while somebody cuts them off, or whose disk fails: reading what is gone raises SIGBUS, which ends a
// process without a word.
#pragma once

#include "common/device/memory.h"

namespace tandem::model {

// From here on this process reads zeros there, where the mapping is a Safetensors', which tells (require_unchanged()); any
// other SIGBUS ends it as ever. For the main() of programs: a signal's action is the whole process's.
void read_zeros_of_truncated_files();

// What is mapped now; more than 1024 at a time are not remembered. Any thread.
void remember_mapping(Span mapped);
void forget_mapping(Span mapped);
bool gave_zeros(Span mapped);  // in place of some of it

}  // namespace tandem::model
