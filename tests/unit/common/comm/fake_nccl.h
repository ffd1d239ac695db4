// The emulated GPUs' NCCL (tests/emulated_gpu/nccl.h) between threads of one process, with all collectives of
// the library, answers as a test wants them, and a record of what it was asked.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "common/comm/nccl/api.h"

namespace tandem::comm::nccl::fake {

// How the fake behaves from now on, over all communicators.
struct Behaviour {
    int polls_in_progress = 2;  // answers of "in progress" before each success
    int looks_at_launch = 0;    // as many answers of "in progress" after each launch, each written down
    bool never_ready = false;   // in progress for ever
    Result init = Result::in_progress;
    Result asynchronous = Result::success;  // what the state of every communicator says
    Result all_gather = Result::in_progress;
    Result registration = Result::success;
};

void reset(const Behaviour& behaviour = {});
void set(const Behaviour& behaviour);
const Api& api();

// "init", "group 3", "abort", "register 67108864", "look", "look after a sleep" (of this thread since the one before), …
std::vector<std::string> log();
int count(const std::string& entry);
int alive();  // communicators that were made and neither destroyed nor aborted

}  // namespace tandem::comm::nccl::fake
