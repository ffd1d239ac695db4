// The engine ranks that a session feeds, as trainer rank 0 holds them; the other ranks hold none.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/trace.h"
#include "engine_adapter/engine.h"
#include "sync/strategy/push_status.h"

namespace tandem::sync {

using Engines = std::vector<std::unique_ptr<engine::Engine>>;

// Calls work(engine, index) for one engine after the other, from `first` on and around, until one fails; a failure goes into
// `status` with phase, engine and bucket.
template <typename Work>
void each_engine(const Engines& engines, PushStatus& status, const char* phase, int bucket, const Work& work,
                 std::size_t first = 0) {
    for (std::size_t i = 0; i < engines.size() && !status.failed; ++i) {
        const std::size_t e = (first + i) % engines.size();
        try {
            work(*engines[e], e);
        } catch (const std::exception& error) {
            status.fail(phase, engines[e]->peer(), bucket, error.what());
        }
    }
}

// Waits until every engine is done with a bucket; returns the milliseconds of the slowest.
inline double wait_loaded(const Engines& engines, PushStatus& status, std::size_t bucket, Deadline deadline) {
    const trace::Scope scope("wait for bucket " + std::to_string(bucket), "load");
    const int number = static_cast<int>(bucket);
    double slowest = 0;
    each_engine(engines, status, "load", number, [&](engine::Engine& engine, std::size_t) {
        slowest = std::max(slowest, engine.buckets().wait_loaded(number, deadline));
    });
    return slowest;
}

// Between two buckets, on the rank that has the engines: what is each in time may together be late. gather_ms of the
// transfer's `ms` so far were the trainer's ranks', the rest the engines': who took more is named.
inline void fail_when_late(const Engines& engines, PushStatus& status, Deadline deadline, double ms,
                           double gather_ms) {
    if (engines.empty() || !deadline.passed()) return;
    const bool by_engines = 2 * gather_ms < ms;
    const std::string who = !by_engines           ? "the trainer's ranks"
                            : engines.size() == 1 ? engines.front()->peer()
                                                  : "the engine ranks";
    status.fail(by_engines ? "load" : "gather", who, -1,
                "the deadline of the whole transfer passed between two buckets");
}

}  // namespace tandem::sync
