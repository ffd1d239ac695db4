// What CUDA refuses, whatever the call's own answer would be: calls without a context, and
// what may not be called while a stream is captured (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).
#pragma once

#include "common/device/cuda/driver.h"

namespace tandem::testing {

// The same entries behind the rules. Of one table in a process.
cuda::Driver with_rules(const cuda::Driver& plain);

void begin_capture();  // by this thread
bool end_capture();    // whether it was spoilt
CUresult spoil_captures();

}  // namespace tandem::testing
