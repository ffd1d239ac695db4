#include "engine_adapter/vllm/others_pause.h"

#include "common/log.h"

namespace tandem::engine {

bool OthersPause::found(VllmServer& server, bool left_paused, Deadline deadline) {
    if (!server.is_paused(deadline)) return false;
    const VllmSleep sleep = server.sleep(deadline);
    if (!sleep.asleep) return !left_paused;
    if (sleep.without_weights && server.wake_up("weights", deadline)) return false;  // nothing else slept
    if (!told_) {
        log_info("{} sleeps: it answers again when it has been woken (POST /wake_up), after the push",
                 server.name());
    }
    told_ = true;
    return true;
}

}  // namespace tandem::engine
