#include <algorithm>
#include <map>
#include <utility>

#include "common/error.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/place.h"
#include "trainer/pipeline/transfers.h"
#include "trainer/pipeline/walk.h"

namespace tandem::pipeline {
namespace {

bool is_send(ActionKind kind) {
    return kind == ActionKind::send_f || kind == ActionKind::send_b;
}

bool is_receive(ActionKind kind) {
    return kind == ActionKind::recv_f || kind == ActionKind::recv_b;
}

// One rank's list, by itself.
class RankCheck {
  public:
    // `inputs`: which of this rank's stages have come; of other ranks' nothing is asked or told.
    RankCheck(const Schedule& schedule, std::size_t rank, Inputs& inputs)
        : schedule_(schedule), rank_(rank), inputs_(inputs) {}

    void run() {
        const ActionList& list = schedule_.ranks[rank_];
        for (std::size_t at = 0; at < list.size(); ++at) {
            const Place place{rank_, at, &list[at]};
            for (const Action& part : parts_of(list[at])) {
                place.demand_own(part, schedule_);
                step(part, place);
            }
        }
        for (const auto& [stage, state] : stages_) {
            enforce(!state.unsharded, "rank {}: stage {} is still unsharded in the end", rank_, stage);
            enforce(state.reduced, "rank {}: stage {} has no REDUCE_GRAD", rank_, stage);
        }
        enforce(unsent_.empty(), [&] {
            return fmt::format("rank {}: {} is missing", rank_, to_string(unsent_.begin()->second));
        });
    }

  private:
    struct StageState {
        bool unsharded = false, reduced = false;
        int gradients = 0;  // micro-batches whose B or W is done
    };
    using Key = std::pair<std::pair<ActionKind, int>, int>;  // kind, stage, micro-batch

    void step(const Action& part, const Place& place) {
        StageState& stage = stages_[part.stage];
        if (part.kind == ActionKind::unshard || part.kind == ActionKind::reshard) {
            const bool unshards = part.kind == ActionKind::unshard;
            place.demand(stage.unsharded != unshards, "the stage is {} already",
                         unshards ? "unsharded" : "sharded");
            stage.unsharded = unshards;
        } else if (part.kind == ActionKind::reduce_grad) {
            place.demand(stage.unsharded, "the stage is sharded");
            place.demand(!stage.reduced, "the stage's gradients have been reduced already");
            place.demand(stage.gradients == schedule_.microbatches,
                         "{} of {} micro-batches have their gradients", stage.gradients,
                         schedule_.microbatches);
            stage.reduced = true;
        } else if (is_compute(part.kind)) {
            compute(part, stage, place);
        } else {
            transfer(part, place);
        }
    }

    void compute(const Action& part, StageState& stage, const Place& place) {
        place.demand(stage.unsharded, "stage {} is sharded", part.stage);
        place.demand(inputs_.has(part), "its input has not been received");
        if (part.kind == ActionKind::full_backward || part.kind == ActionKind::backward_weight)
            ++stage.gradients;
        if (const auto transfer = transfer_after(part, schedule_.rank_of_stage))
            unsent_.emplace(key_of(transfer->send), transfer->send);
        else
            inputs_.finish(part);
    }

    void transfer(const Action& part, const Place& place) {
        place.demand(transfer_of(part, schedule_.rank_of_stage).has_value(),
                     "that neighbour of the stage is on the same rank, or there is none");
        if (is_send(part.kind))
            return place.demand(unsent_.erase(key_of(part)) == 1,
                                "it has not been computed, or has been sent already");
        place.demand(inputs_.receive(part), "it has been received already");
    }

    static Key key_of(const Action& action) { return {{action.kind, action.stage}, action.microbatch}; }

    const Schedule& schedule_;
    std::size_t rank_;
    Inputs& inputs_;
    std::map<int, StageState> stages_;
    std::map<Key, Action> unsent_;
};

void check_same_compute(const Schedule& lowered, const Schedule& compute) {
    enforce(lowered.ranks.size() == compute.ranks.size() && lowered.rank_of_stage == compute.rank_of_stage &&
                lowered.microbatches == compute.microbatches,
            "the lists are of other ranks, stages or micro-batches than their schedule");
    const Schedule own = compute_of(lowered);
    for (std::size_t rank = 0; rank < own.ranks.size(); ++rank) {
        const ActionList &have = own.ranks[rank], &want = compute.ranks[rank];
        const auto [h, w] = std::mismatch(have.begin(), have.end(), want.begin(), want.end());
        enforce(h == have.end() && w == want.end(), [&, h = h, w = w] {
            const auto text = [](const auto& at, const ActionList& list) {
                return at == list.end() ? "nothing" : to_string(*at);
            };
            return fmt::format("rank {}: compute action {} is {}, where the schedule has {}", rank,
                               h - have.begin(), text(h, have), text(w, want));
        });
    }
}

using Channel = std::pair<int, int>;  // from rank, to rank

// Whether each receiver expects what it will get next. After RankCheck.
void check_order(const Schedule& lowered) {
    std::map<Channel, std::vector<Place>> sent, received;
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        for (std::size_t at = 0; at < lowered.ranks[rank].size(); ++at) {
            const Action& action = lowered.ranks[rank][at];
            if (!is_send(action.kind) && !is_receive(action.kind)) continue;
            const auto transfer = transfer_of(action, lowered.rank_of_stage);
            auto& places = is_send(action.kind) ? sent : received;
            places[{transfer->from, transfer->to}].push_back({rank, at, &action});
        }
    }
    for (const auto& [channel, sends] : sent) {
        // As many: each rank has its own, each once.
        const std::vector<Place>& receives = received.at(channel);
        for (std::size_t i = 0; i < sends.size(); ++i) {
            const auto transfer = transfer_of(*sends[i].action, lowered.rank_of_stage);
            receives[i].demand(*receives[i].action == transfer->recv,
                               "rank {} sends {} here: SENDs and RECVs of two ranks must have one order",
                               channel.first, to_string(*sends[i].action));
        }
    }
}

void check_channels(const Schedule& lowered, int capacity) {
    std::map<Channel, int> on_the_way;
    std::vector<std::size_t> next(lowered.ranks.size());  // of each rank
    const auto waits_for = [&](const Transfer& transfer) {
        const auto to = static_cast<std::size_t>(transfer.to);
        return next[to] < lowered.ranks[to].size() && lowered.ranks[to][next[to]] == transfer.recv;
    };
    const auto ready = [&](std::size_t, const Action& action) {
        if (!is_send(action.kind) && !is_receive(action.kind)) return true;
        const auto transfer = transfer_of(action, lowered.rank_of_stage);
        const int count = on_the_way[{transfer->from, transfer->to}];
        if (is_receive(action.kind)) return count > 0;
        return count < capacity || (count == 0 && waits_for(*transfer));
    };
    const auto take = [&](std::size_t rank, const Action& action) {
        ++next[rank];
        if (!is_send(action.kind) && !is_receive(action.kind)) return;
        const auto transfer = transfer_of(action, lowered.rank_of_stage);
        on_the_way[{transfer->from, transfer->to}] += is_send(action.kind) ? 1 : -1;
    };
    walk(lowered.ranks, lowered.rank_of_stage, ready, take);
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        if (next[rank] == lowered.ranks[rank].size()) continue;
        Place{rank, next[rank], &lowered.ranks[rank][next[rank]]}.demand(
            false, "it waits forever where {} transfers from one rank to another may be on the way",
            capacity);
    }
}

}  // namespace

void check_lowered(const Schedule& lowered, const Schedule& compute, int channel_capacity) {
    require(channel_capacity >= 0, "channel_capacity({}) is below 0", channel_capacity);
    check_compute(compute);
    check_same_compute(lowered, compute);
    Inputs inputs(lowered.stages(), lowered.microbatches);
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) RankCheck(lowered, rank, inputs).run();
    check_order(lowered);
    check_channels(lowered, channel_capacity);
}

}  // namespace tandem::pipeline
