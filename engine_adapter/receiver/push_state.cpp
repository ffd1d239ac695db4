#include "engine_adapter/receiver/push_state.h"

#include "common/error.h"

namespace tandem::engine {

void PushState::require_idle(const char* what) const {
    if (open_) throw ProtocolError(fmt::format("{} while version {} is open", what, version_));
}

void PushState::pause() {
    require_idle("pause");
    held_ = true;
}

void PushState::begin(std::int64_t version) {
    require_idle("begin");
    open_ = true;
    dirty_ = false;
    version_ = version;
}

void PushState::write() {
    if (!open_) throw ProtocolError("weights written without an open version");
    dirty_ = true;
}

void PushState::commit(std::int64_t version) {
    if (!open_) throw ProtocolError("commit without an open version");
    if (version != version_)
        throw ProtocolError(fmt::format("commit of version {} while {} is open", version, version_));
    open_ = false;
    dirty_ = false;
    undecided_ = held_;
}

void PushState::resume() {
    require_idle("resume");
    held_ = false;
    undecided_ = false;
}

PushState::End PushState::end(bool may_serve) {
    const PushState was = *this;
    held_ = open_ = dirty_ = undecided_ = false;
    if (was.open_ && was.dirty_) return End::broken;
    if (was.undecided_) return may_serve && !was.open_ ? End::served : End::withheld;
    return was.under_way() ? End::as_before : End::nothing;
}

}  // namespace tandem::engine
