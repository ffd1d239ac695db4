// What must hold in every world, and from there on once nothing goes wrong any more.
#include <fmt/core.h>

#include "tests/unit/sync/protocol/world.h"

namespace tandem::sync::protocol {

std::string World::broken_promise() const {
    std::uint8_t served = 0;
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        const EngineRank& rank = ranks_[e];
        if (!generates(rank)) continue;
        for (std::size_t part = 0; part < kParts; ++part) {
            if (read(rank, part) != rank.label)
                return fmt::format("engine {} generates version {} from part {} of version {}", e, rank.label,
                                   part, read(rank, part));
        }
        if (served != 0 && served != rank.label)
            return fmt::format("engines generate versions {} and {}", served, rank.label);
        served = rank.label;
    }
    if (std::string promise = settle_without_trainers(); !promise.empty()) return promise;
    for (std::size_t t = 0; t < setting_.trainers; ++t) {
        if (std::string promise = settle_with(t); !promise.empty()) return promise;
    }
    return {};
}

// Once every trainer is gone and the leases are over nobody stays paused, and a new trainer's push succeeds.
std::string World::settle_without_trainers() const {
    World calm = *this;
    for (std::size_t t = 0; t < setting_.trainers; ++t) calm.kill(t);
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        while (calm.serve(e, false)) {
        }
        calm.notice(e);
        if (calm.ranks_[e].push.under_way())
            return fmt::format("engine {} waits for a trainer that is gone", e);
    }
    calm.trainers_[0] = {};
    calm.trainers_[0].pushes_left = 1;
    calm.links_[0] = {};
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        if (!calm.connect(0, e)) return fmt::format("engine {} has no seat for a new trainer", e);
    }
    return calm.settle_with(0);
}

// When nothing goes wrong from here on a trainer that is connected ends its push, and the next one succeeds.
std::string World::settle_with(std::size_t t) const {
    if (!trainers_[t].alive || !connected(t)) return {};
    World calm = *this;
    calm.trainers_[t].frozen = false;
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        if (!calm.links_[t][e].engine_end || calm.ranks_[e].seat != t + 1) return {};
    }
    for (int push = 0; push < 2; ++push) {
        if (!calm.trainers_[t].pushing) {
            calm.trainers_[t].pushes_left = 1;
            calm.advance(t);
        } else {
            calm.trainers_[t].pushes_left = 0;
        }
        for (int steps = 0; calm.trainers_[t].pushing; ++steps) {
            if (steps > 200) return fmt::format("the push of trainer {} does not end", t);
            if (calm.receive(t)) continue;
            bool served = false;
            for (std::size_t e = 0; e < setting_.engines; ++e) served = calm.serve(e, false) || served;
            if (!served && !calm.advance(t)) return fmt::format("trainer {} waits for nobody", t);
        }
    }
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        const EngineRank& rank = calm.ranks_[e];
        if (!calm.generates(rank) || rank.label != calm.trainers_[t].version)
            return fmt::format("engine {} does not serve the next push of trainer {}", e, t);
        for (std::size_t part = 0; part < kParts; ++part) {
            if (calm.read(rank, part) != rank.label)
                return fmt::format("engine {} serves a mixture after all", e);
        }
    }
    return {};
}

}  // namespace tandem::sync::protocol
