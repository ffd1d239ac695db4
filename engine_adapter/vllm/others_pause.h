// Whether a pause that a vLLM server is in is somebody else's, and so stays after a push: one that nobody's killed push
// left behind, and that of a server that sleeps. That one has given its memory away (/sleep, /release_kv_cache_memory)
// and is paused until all of it is back: whoever put it to sleep wakes it (/wake_up), which resumes it too. It says whether
// it sleeps in /metrics; one that keeps no statistics is taken for paused alone.
//
//   asleep             what the push does
//   its cache          nothing
//   its weights, too   has them back in memory first, by their tag: they are loaded into. Its cache stays asleep
#pragma once

#include "common/deadline.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

class OthersPause {
  public:
    // left_paused: a push that did not come to its end has paused it. Of a server that sleeps it returns with its weights
    // in memory. Throws TransportError, DeadlineExceeded.
    bool found(VllmServer& server, bool left_paused, Deadline deadline);

  private:
    bool told_ = false;
};

}  // namespace tandem::engine
