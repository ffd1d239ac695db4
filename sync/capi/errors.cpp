#include "sync/capi/errors.h"

#include <utility>

#include "common/error.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync::capi {
namespace {

Failure& last() {
    thread_local Failure failure;
    return failure;
}

}  // namespace

Failure to_failure(const std::exception& error) {
    Failure failure;
    failure.status = static_cast<int>(to_status(error).code);
    failure.message = error.what();
    if (const auto* sync = dynamic_cast<const SyncError*>(&error)) {
        failure.status = TD_SYNC_FAILED;
        failure.rank = sync->rank();
        failure.phase = sync->phase();
        failure.peer = sync->peer();
        failure.bucket = sync->bucket();
    } else if (const auto* transport = dynamic_cast<const TransportError*>(&error)) {
        failure.phase = transport->phase();
        failure.peer = transport->peer();
    }
    return failure;
}

int remember(Failure failure) noexcept {
    last() = std::move(failure);
    return last().status;
}

void forget() noexcept {
    last() = {};
}

}  // namespace tandem::sync::capi

using tandem::sync::capi::last;

const char* td_last_error(void) {
    return last().message.c_str();
}

int td_last_error_details(td_error* out) {
    const auto& failure = last();
    td_error error{};
    error.status = failure.status;
    error.rank = failure.rank;
    error.bucket = failure.bucket;
    error.phase = failure.phase.c_str();
    error.peer = failure.peer.c_str();
    error.message = failure.message.c_str();
    try {
        tandem::sync::capi::write_struct(out, error, "td_error");
    } catch (const std::exception&) {
        return TD_INVALID;  // the error that was asked for stays
    }
    return TD_OK;
}
