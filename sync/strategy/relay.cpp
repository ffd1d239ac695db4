#include "sync/strategy/relay.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "common/error.h"

namespace tandem::sync {
namespace {

// Looks at the words again and again, and now and then whether those that are waited for live.
class Looks {
  public:
    // Behind each look at the words: whether it is time for the other.
    bool whether_they_live() {
        looks_.again();
        if (!looks_.slow() || !next_.passed()) return false;
        next_ = Deadline::after(kEach);
        return true;
    }

  private:
    static constexpr auto kEach = std::chrono::milliseconds(100);
    engine::RelayLooks looks_;
    Deadline next_ = Deadline::after(kEach);
};

// Throws where the engine has been attached to what it takes otherwise since it was asked.
engine::BucketRelay& relay_of(engine::Engine& engine) {
    engine::BucketRelay* relay = engine.buckets().relay();
    require(relay != nullptr, "{}: no relay of what it is attached to", engine.peer());
    return *relay;
}

}  // namespace

bool Relay::taken_by(comm::Communicator& world, const Engines& engines) {
    std::int64_t all = world.rank() == 0 && !engines.empty() ? 1 : 0;
    for (const auto& engine : engines) all = engine->buckets().relay() == nullptr ? 0 : all;
    world.broadcast({reinterpret_cast<std::byte*>(&all), sizeof(all)}, 0);
    return all != 0;
}

Relay::Relay(comm::Communicator& world, const Engines& engines, std::size_t engine_ranks)
    : world_(world),
      engines_(engines),
      rank_(static_cast<std::size_t>(world.rank())),
      memory_(Staging::share(world, {}, 1,
                             engine::RelayWords::bytes(static_cast<std::size_t>(world.size()), engine_ranks),
                             "relay words")),
      words_(memory_.memory(), static_cast<std::size_t>(world.size()), engine_ranks) {}

void Relay::begin(std::size_t buckets, std::size_t slots) {
    from_ += buckets_;
    buckets_ = buckets;
    slots_ = slots;
    written_ = 0;
}

void Relay::start(PushStatus& status, Deadline deadline, const engine::RelayProbe* probe) {
    each_engine(engines_, status, "load", -1, [&](engine::Engine& engine, std::size_t e) {
        const engine::Relay relay{memory_.region(), words_.ranks(), words_.engines(), e, from_};
        engine::BucketRelay& there = relay_of(engine);
        probe == nullptr ? there.take(relay, deadline) : there.take_probe(relay, *probe, deadline);
    });
}

bool Relay::wait_for_slot(PushStatus& status, Deadline deadline) {
    if (written_ < slots_) return !words_.stopped(from_);
    const std::uint64_t count = from_ + written_ + 1 - slots_;
    Looks looks;
    for (int late = behind(count); late >= 0; late = behind(count)) {
        if (words_.stopped(from_)) return false;
        if (!looks.whether_they_live()) continue;
        world_.check_members("relay");
        const auto e = static_cast<std::size_t>(late);
        if (!engines_.empty() && relay_of(*engines_[e]).answered() && !words_.stopped(from_)) {
            give_up(e, status, deadline);
            return false;
        }
        if (!deadline.passed()) continue;
        const std::string what = fmt::format("no answer within the deadline to what rank {} wrote", rank_);
        // Only rank 0 can tell of an engine: where it does not, it is rank 0 that is late.
        if (engines_.empty()) throw DeadlineExceeded("rank 0", "relay", what);
        status.fail("load", engines_[e]->peer(), static_cast<int>(written_ - slots_), what);
        return false;
    }
    return !words_.stopped(from_);
}

void Relay::wait_for_ranks(PushStatus& status, Deadline deadline, std::chrono::milliseconds at_most) {
    if (engines_.empty()) return;
    auto soon = deadline.within(at_most);
    std::uint64_t seen = progress();
    Looks looks;
    while (!all_taken() && !words_.stopped(from_)) {
        if (!looks.whether_they_live()) continue;
        world_.check_members("relay");
        for (std::size_t e = 0; e < engines_.size(); ++e) {
            // In this order: what it has not taken after its answer, it never will.
            const bool early = relay_of(*engines_[e]).answered() && !all_taken_by(e);
            if (early && !words_.stopped(from_)) return give_up(e, status, deadline);
        }
        if (const std::uint64_t now = progress(); now != seen) {
            seen = now;
            soon = deadline.within(at_most);
        }
        if (!soon.passed()) continue;
        for (std::size_t e = 0; e < engines_.size(); ++e) {
            for (std::size_t rank = 0; rank < words_.ranks(); ++rank) {
                if (words_.taken(e, rank) >= words_.written(rank)) continue;
                stop();
                return status.fail("load", engines_[e]->peer(), -1,
                                   fmt::format("no answer within the deadline to what rank {} wrote", rank));
            }
        }
        return;
    }
}

// An engine that answers while it lacks a bucket has failed; one that was killed has not stopped the words.
void Relay::give_up(std::size_t engine, PushStatus& status, Deadline deadline) {
    stop();
    std::string why = "it ended the relay early";
    try {
        relay_of(*engines_[engine]).wait_taken(deadline);
    } catch (const std::exception& error) {
        why = error.what();
    }
    status.fail("load", engines_[engine]->peer(), -1, why);
}

double Relay::wait_taken(PushStatus& status, Deadline deadline) {
    // Whoever stopped the relay knows why; the others know only that it was stopped.
    std::size_t first = words_.stopped(from_) ? words_.stopped_by() : 0;
    if (first >= engines_.size()) first = 0;  // the trainer did
    double slowest = 0;
    each_engine(
        engines_, status, "load", -1,
        [&](engine::Engine& engine, std::size_t) {
            slowest = std::max(slowest, relay_of(engine).wait_taken(deadline));
        },
        first);
    return slowest;
}

std::uint64_t Relay::progress() const {
    std::uint64_t sum = 0;
    for (std::size_t rank = 0; rank < words_.ranks(); ++rank) {
        sum += words_.written(rank);
        for (std::size_t e = 0; e < words_.engines(); ++e) sum += words_.taken(e, rank);
    }
    return sum;
}

bool Relay::all_taken_by(std::size_t engine) const {
    for (std::size_t rank = 0; rank < words_.ranks(); ++rank) {
        if (words_.taken(engine, rank) < from_ + buckets_) return false;
    }
    return true;
}

bool Relay::all_taken() const {
    for (std::size_t e = 0; e < words_.engines(); ++e) {
        if (!all_taken_by(e)) return false;
    }
    return true;
}

// An engine that has not taken so many of this rank's buckets; -1: all have.
int Relay::behind(std::uint64_t count) const {
    for (std::size_t e = 0; e < words_.engines(); ++e) {
        if (words_.taken(e, rank_) < count) return static_cast<int>(e);
    }
    return -1;
}

}  // namespace tandem::sync
