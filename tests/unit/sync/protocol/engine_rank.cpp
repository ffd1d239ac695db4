// What engine ranks do: serve requests as the receiver does, and lose their trainer or themselves.
#include "common/error.h"
#include "tests/unit/sync/protocol/world.h"

namespace tandem::sync::protocol {

void World::end_push(EngineRank& rank) {
    using End = engine::PushState::End;
    const End end = rank.push.end(setting_.engines == 1 && rank.reads == 0);
    rank.broken = rank.broken || end == End::broken || end == End::withheld;
    rank.adopted = rank.loaded = 0;
}

void World::free_seat(std::size_t e) {
    EngineRank& rank = ranks_[e];
    if (rank.seat == 0) return;
    Link& link = links_[rank.seat - 1u][e];
    link.engine_end = false;
    link.requests.clear();
    rank.seat = 0;
    end_push(rank);
}

// keep: the message arrives a second time.
bool World::serve(std::size_t e, bool keep) {
    EngineRank& rank = ranks_[e];
    if (!rank.alive || rank.seat == 0) return false;
    Link& link = links_[rank.seat - 1u][e];
    if (!link.engine_end || link.requests.size == 0 || link.replies.full()) return false;
    const Request request = keep ? link.requests.items[0] : link.requests.pop();
    if (request.id <= rank.last_id) return !keep;
    rank.last_id = request.id;
    const bool ok = carry_out(rank, request);
    if (link.trainer_end) link.replies.push({request.id, static_cast<std::uint8_t>(ok)});
    return true;
}

bool World::carry_out(EngineRank& rank, const Request& request) {
    try {
        switch (request.op) {
            case Op::pause:
                rank.push.pause();
                return true;
            case Op::resume:
                rank.push.resume();
                return true;
            case Op::abort:
                end_push(rank);
                return true;
            case Op::begin:
                if (request.version <= rank.newest) return false;
                rank.push.begin(request.version);
                rank.loaded = rank.adopted = 0;
                return true;
            default:
                break;
        }
        if (!rank.push.open()) return false;
        if (request.op == Op::load) {
            rank.push.write();
            rank.reads = 0;
            std::uint8_t& part = rank.own[request.part];
            part = request.base == 0 || part == request.base ? request.version : kGarbage;
            if (setting_.mode == Mode::direct) part = shards_[rank.seat - 1u][request.part];
            if (setting_.mode == Mode::direct && part != request.version) throw ProtocolError("corrupted");
            rank.loaded = static_cast<std::uint8_t>(rank.loaded | 1u << request.part);
            return true;
        }
        if (request.op == Op::adopt) {
            if (rank.loaded != 0) throw ProtocolError("parts were loaded");
            rank.adopted = static_cast<std::uint8_t>(request.half + 1);
            return true;
        }
        engine::PushState committed = rank.push;
        committed.commit(request.version);
        // Buckets were verified one by one, changes are now: by the bytes that the engine holds.
        const bool right = setting_.mode != Mode::delta ||
                           (rank.own[0] == request.version && rank.own[1] == request.version);
        const bool whole = rank.loaded == 3 && right;
        if (rank.adopted == 0 && !whole) throw ProtocolError("not whole");
        if (rank.adopted != 0) rank.reads = rank.adopted;
        rank.push = committed;
        rank.label = rank.newest = request.version;
        rank.broken = false;
        rank.adopted = rank.loaded = 0;
        if (request.resume != 0) rank.push.resume();
        return true;
    } catch (const ProtocolError&) {
        if (rank.push.open() && request.op != Op::pause && request.op != Op::begin &&
            request.op != Op::resume)
            end_push(rank);
        return false;
    }
}

bool World::notice(std::size_t e) {
    const EngineRank& rank = ranks_[e];
    if (!rank.alive || rank.seat == 0) return false;
    const Link& link = links_[rank.seat - 1u][e];
    if (link.trainer_end || link.requests.size != 0) return false;
    free_seat(e);
    return true;
}

bool World::lapse(std::size_t e) {
    if (!ranks_[e].alive || ranks_[e].seat == 0 || !ranks_[e].push.under_way()) return false;
    free_seat(e);
    return true;
}

bool World::crash(std::size_t e) {
    if (!ranks_[e].alive) return false;
    free_seat(e);
    ranks_[e] = {};  // one that starts again at once holds nothing
    return true;
}

}  // namespace tandem::sync::protocol
