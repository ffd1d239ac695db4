// The bench's Chrome trace: every rank's spans (common/trace.h) in one file.
#pragma once

#include <string>

#include "common/comm/communicator.h"

namespace tandem::sync {

// Collective: takes what each rank has recorded since it was last taken, and rank 0 writes it all to `file`,
// whole or not at all. Throws SystemError on rank 0 where the file cannot be written, after the exchange.
// trace::add_to_file adds what other processes recorded.
void write_trace(comm::Communicator& world, const std::string& file);

}  // namespace tandem::sync
