// Ranks as fibers of one thread, for tests that make millions of collective calls: a rank that waits for its peers lets
// them go on, without the system calls that threads wait by. x86-64.
#pragma once

#include <functional>
#include <memory>

#include "common/comm/communicator.h"

namespace tandem::test {

// As comm::run_threads: body with each rank's world, rank 0 first; throws what the first rank that failed threw, and an
// Error that names them where all wait for each other. Their collectives are naive: memory of the CPU, on inline
// streams. What is sent waits at its receiver, and the sender goes on.
void run_fibers(int world_size, const std::function<void(std::shared_ptr<comm::Communicator>)>& body);
// The same with ranks that run in a drawn order, and each time that they could go on may be kept waiting.
void run_fibers(int world_size, unsigned delays,
                const std::function<void(std::shared_ptr<comm::Communicator>)>& body);

}  // namespace tandem::test
