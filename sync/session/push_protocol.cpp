#include "sync/session/push_protocol.h"

namespace tandem::sync {

// How many engines the current step concerns.
std::uint32_t PushProtocol::count() const {
    if (step_ == PushStep::transfer) return 1;
    return step_ == PushStep::abort ? told_ : engines_;
}

// Goes to the next step that has an engine left.
void PushProtocol::skip_empty_steps() {
    while (!over_ && engine_ >= count()) {
        over_ = step_ == PushStep::resume || step_ == PushStep::abort;
        if (over_) return;
        step_ = static_cast<PushStep>(static_cast<std::uint8_t>(step_) + 1);
        decided_ = step_ == PushStep::resume;
        engine_ = 0;
    }
}

std::optional<PushProtocol::Next> PushProtocol::next() const {
    if (over_) return {};
    return Next{step_, engine_};
}

void PushProtocol::done(bool ok) {
    if (step_ == PushStep::pause) told_ = engine_ + 1;
    ++engine_;
    if (!ok) fail();
    skip_empty_steps();
}

void PushProtocol::fail() {
    failed_ = true;
    if (over_ || decided_ || step_ == PushStep::abort) return;
    step_ = PushStep::abort;
    engine_ = 0;
    skip_empty_steps();
}

}  // namespace tandem::sync
