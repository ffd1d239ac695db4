#include "tests/unit/sync/protocol/world.h"

#include <fmt/core.h>

namespace tandem::sync::protocol {

namespace {

Op op_of(PushStep step) {
    switch (step) {
        case PushStep::pause:
            return Op::pause;
        case PushStep::begin:
            return Op::begin;
        case PushStep::commit:
            return Op::commit;
        case PushStep::resume:
            return Op::resume;
        case PushStep::abort:
            return Op::abort;
        case PushStep::transfer:
            break;  // several messages
    }
    return Op::load;
}

}  // namespace

World::World(const Setting& setting) : setting_(setting) {
    for (std::size_t t = 0; t < setting.trainers; ++t) trainers_[t].pushes_left = setting.pushes;
    for (std::size_t e = 0; e < setting.engines; ++e) {
        ranks_[e].own = {1, 1};
        ranks_[e].label = ranks_[e].newest = 1;
        connect(0, e);
    }
}

bool World::connected(std::size_t t) const {
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        if (!links_[t][e].trainer_end) return false;
    }
    return true;
}

bool World::generates(const EngineRank& rank) const {
    return rank.alive && !rank.broken && rank.label != 0 && !rank.push.held() && !rank.push.open();
}

std::uint8_t World::read(const EngineRank& rank, std::size_t part) const {
    return rank.reads == 0 ? rank.own[part] : halves_[rank.reads - 1u][part];
}

std::uint8_t World::half_of(std::size_t t) const {
    return static_cast<std::uint8_t>((t * kSessions + trainers_[t].session) * 2 + trainers_[t].free_half);
}

// ---- the network

bool World::connect(std::size_t t, std::size_t e) {
    Link& link = links_[t][e];
    if (!running(t) || link.trainer_end || link.engine_end || !ranks_[e].alive || ranks_[e].seat != 0)
        return false;
    if (trainers_[t].pushing) return false;
    link = {};
    link.trainer_end = link.engine_end = true;
    ranks_[e].seat = static_cast<std::uint8_t>(t + 1);
    ranks_[e].last_id = 0;
    return true;
}

// A session that has lost an engine rank, or never had them all, ends; the next one starts from nothing.
bool World::disconnect(std::size_t t) {
    Trainer& trainer = trainers_[t];
    if (!running(t) || trainer.pushing || connected(t)) return false;
    bool any = false;
    for (std::size_t e = 0; e < setting_.engines; ++e) any = any || links_[t][e].trainer_end;
    if (!any || trainer.session + 1u >= kSessions) return false;
    for (std::size_t e = 0; e < setting_.engines; ++e) links_[t][e].trainer_end = false;
    ++trainer.session;
    trainer.free_half = 0;
    return true;
}

bool World::cut(std::size_t t, std::size_t e) {
    Link& link = links_[t][e];
    if (!link.trainer_end || !link.engine_end) return false;
    link.trainer_end = false;
    link.requests.clear();
    link.replies.clear();
    return true;
}

// ---- trainers

void World::start_push(std::size_t t) {
    Trainer& trainer = trainers_[t];
    --trainer.pushes_left;
    trainer.pushing = true;
    trainer.version = ++newest_;
    trainer.filled = trainer.told = 0;
    trainer.commit.fill(0);
    trainer.push = PushProtocol(setting_.engines);
    if (setting_.mode == Mode::direct) shards_[t].fill(trainer.version);
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        const EngineRank& rank = ranks_[e];
        trainer.base[e] = rank.broken || rank.reads != 0 ? std::uint8_t{0} : rank.label;
    }
}

bool World::advance(std::size_t t) {
    Trainer& trainer = trainers_[t];
    if (!running(t) || trainer.awaiting) return false;
    if (!trainer.pushing) {
        if (trainer.pushes_left == 0 || !connected(t)) return false;
        start_push(t);
        return true;
    }
    if (setting_.mode == Mode::alias && trainer.filled < kParts) {
        halves_[half_of(t)][trainer.filled++] = trainer.version;
        return true;
    }
    const auto next = trainer.push.next();
    if (!next) {
        trainer.pushing = false;
        if (trainer.push.decided()) trainer.free_half ^= 1u;
        return true;
    }
    if (next->step == PushStep::transfer) return transfer(t);
    if (sent_ahead(t, *next)) return true;
    send(t, next->engine, {0, op_of(next->step), trainer.version, 0, 0, 0});
    return true;
}

// The next message of the transfer.
bool World::transfer(std::size_t t) {
    Trainer& trainer = trainers_[t];
    const bool alias = setting_.mode == Mode::alias;
    const std::size_t messages = setting_.engines * (alias ? 1 : kParts);
    if (trainer.told == messages) {
        trainer.push.done(true);
        return true;
    }
    const std::size_t e = trainer.told / (alias ? 1 : kParts);
    const auto part = static_cast<std::uint8_t>(trainer.told % kParts);
    if (alias) {
        send(t, e, {0, Op::adopt, trainer.version, 0, 0, half_of(t)});
    } else {
        const std::uint8_t base = setting_.mode == Mode::delta ? trainer.base[e] : std::uint8_t{0};
        send(t, e, {0, Op::load, trainer.version, part, base, 0});
    }
    if (setting_.ahead && trainer.awaiting && trainer.told + 1u == messages) {
        const auto resume = static_cast<std::uint8_t>(setting_.engines == 1);
        for (std::size_t i = 0; i < setting_.engines; ++i)
            trainer.commit[i] = post(t, i, {0, Op::commit, trainer.version, 0, 0, 0, resume});
    }
    return true;
}

// A step whose request was sent before: waits for its answer, or needs none.
bool World::sent_ahead(std::size_t t, const PushProtocol::Next& next) {
    Trainer& trainer = trainers_[t];
    if (!setting_.ahead) return false;
    if (next.step == PushStep::resume && setting_.engines == 1) {
        trainer.push.done(true);
        return true;
    }
    if (next.step != PushStep::commit) return false;
    if (trainer.commit[next.engine] == 0) {  // the link was gone
        trainer.push.done(false);
        return true;
    }
    trainer.awaiting = true;
    trainer.awaited = trainer.commit[next.engine];
    return true;
}

void World::send(std::size_t t, std::size_t e, Request request) {
    const std::uint8_t id = post(t, e, request);
    if (id == 0) return answered(t, false);
    trainers_[t].awaiting = true;
    trainers_[t].awaited = id;
}

// The request's id; 0: it could not be sent.
std::uint8_t World::post(std::size_t t, std::size_t e, Request request) {
    Link& link = links_[t][e];
    if (!link.trainer_end || link.requests.full()) return 0;
    request.id = ++trainers_[t].last_id;
    link.requests.push(request);
    return request.id;
}

// How the step that next() named has gone.
void World::answered(std::size_t t, bool ok) {
    Trainer& trainer = trainers_[t];
    trainer.awaiting = false;
    const bool transferring = trainer.push.next()->step == PushStep::transfer;
    if (transferring && ok) {
        ++trainer.told;
        return;
    }
    trainer.push.done(ok);
}

bool World::receive(std::size_t t) {
    Trainer& trainer = trainers_[t];
    if (!running(t) || !trainer.awaiting) return false;
    const auto next = trainer.push.next();
    const std::size_t per_engine = setting_.mode == Mode::alias ? 1 : kParts;
    const std::size_t e = next->step == PushStep::transfer ? trainer.told / per_engine : next->engine;
    Link& link = links_[t][e];
    if (link.replies.size == 0) {
        if (link.trainer_end && link.engine_end) return false;
        link.trainer_end = false;  // the engine hung up
        answered(t, false);
        return true;
    }
    const Reply reply = link.replies.pop();
    if (reply.id == trainer.awaited) answered(t, reply.ok != 0);  // else a late answer
    return true;
}

bool World::give_up(std::size_t t) {
    if (!running(t) || !trainers_[t].awaiting) return false;
    answered(t, false);
    return true;
}

// What it had sent still arrives.
bool World::kill(std::size_t t) {
    if (!trainers_[t].alive) return false;
    trainers_[t] = {};
    trainers_[t].alive = false;
    for (Link& link : links_[t]) {
        link.trainer_end = false;
        link.replies.clear();
    }
    return true;
}

// The next step of training; what it leaves is of no version.
bool World::train(std::size_t t, std::size_t part) {
    if (setting_.mode != Mode::direct || !running(t) || shards_[t][part] == kGarbage) return false;
    shards_[t][part] = kGarbage;
    return true;
}

// ---- all of it

void World::successors(std::vector<std::pair<std::string, World>>& out) const {
    out.clear();
    const auto add = [&](bool fault, const std::string& name, const auto& event) {
        if (fault && faults_ >= setting_.faults) return;
        World next = *this;
        if (!event(next)) return;
        if (fault) ++next.faults_;
        out.emplace_back(name, std::move(next));
    };
    for (std::size_t t = 0; t < setting_.trainers; ++t) {
        const std::string who = fmt::format("trainer {}", t);
        add(false, who + " advances", [t](World& w) { return w.advance(t); });
        add(false, who + " hears", [t](World& w) { return w.receive(t); });
        for (std::size_t part = 0; part < kParts; ++part) {
            add(trainers_[t].pushing, fmt::format("{} writes part {}", who, part),
                [t, part](World& w) { return w.train(t, part); });
        }
        add(false, who + " disconnects", [t](World& w) { return w.disconnect(t); });
        add(true, who + " waits no longer", [t](World& w) { return w.give_up(t); });
        add(true, who + " is killed", [t](World& w) { return w.kill(t); });
        add(true, who + " freezes", [t](World& w) {
            return w.running(t) && w.trainers_[t].pushing && (w.trainers_[t].frozen = true);
        });
        add(false, who + " wakes",
            [t](World& w) { return w.trainers_[t].frozen && !(w.trainers_[t].frozen = false); });
        for (std::size_t e = 0; e < setting_.engines; ++e) {
            add(false, fmt::format("{} connects to {}", who, e),
                [t, e](World& w) { return w.connect(t, e); });
            add(true, fmt::format("{} is cut off from {}", who, e), [t, e](World& w) { return w.cut(t, e); });
        }
    }
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        const std::string who = fmt::format("engine {}", e);
        add(false, who + " serves", [e](World& w) { return w.serve(e, false); });
        add(true, who + " serves what comes again", [e](World& w) { return w.serve(e, true); });
        add(false, who + " notices", [e](World& w) { return w.notice(e); });
        add(true, who + " ends the lease", [e](World& w) { return w.lapse(e); });
        add(true, who + " crashes", [e](World& w) { return w.crash(e); });
    }
}

std::string World::bytes() const {
    std::string out;
    const auto put = [&](auto... values) { (out.push_back(static_cast<char>(values)), ...); };
    put(newest_, faults_);
    for (std::size_t t = 0; t < setting_.trainers; ++t) {
        const Trainer& x = trainers_[t];
        put(x.alive, x.frozen, x.pushing, x.awaiting, x.awaited, x.last_id, x.version, x.pushes_left,
            x.session, x.filled, x.free_half, x.told);
        for (const std::uint8_t base : x.base) put(base);
        for (const std::uint8_t commit : x.commit) put(commit);
        out.append(reinterpret_cast<const char*>(&x.push), sizeof(x.push));
        for (std::size_t e = 0; e < setting_.engines; ++e) {
            const Link& link = links_[t][e];
            put(link.trainer_end, link.engine_end, link.requests.size, link.replies.size);
            for (std::size_t i = 0; i < link.requests.size; ++i) {
                const Request& r = link.requests.items[i];
                put(r.id, static_cast<std::uint8_t>(r.op), r.version, r.part, r.base, r.half, r.resume);
            }
            for (std::size_t i = 0; i < link.replies.size; ++i)
                put(link.replies.items[i].id, link.replies.items[i].ok);
        }
    }
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        const EngineRank& x = ranks_[e];
        put(x.alive, x.seat, x.own[0], x.own[1], x.reads, x.adopted, x.label, x.broken, x.loaded, x.last_id,
            x.newest, x.push.held(), x.push.open(), x.push.dirty(), x.push.undecided(), x.push.version());
    }
    if (setting_.mode == Mode::alias) {
        for (const auto& half : halves_) put(half[0], half[1]);
    }
    if (setting_.mode == Mode::direct) {
        for (const auto& shard : shards_) put(shard[0], shard[1]);
    }
    return out;
}

std::string World::to_string() const {
    std::string text;
    for (std::size_t e = 0; e < setting_.engines; ++e) {
        const EngineRank& rank = ranks_[e];
        text +=
            fmt::format("  engine {}: version {}{}{}{}{}, reads {} ({} {})\n", e, rank.label,
                        rank.broken ? ", refuses" : "", rank.push.held() ? ", held" : "",
                        rank.push.open() ? fmt::format(", open {}", rank.push.version()) : "",
                        rank.push.undecided() ? ", undecided" : "", rank.reads, read(rank, 0), read(rank, 1));
    }
    return text;
}

}  // namespace tandem::sync::protocol
