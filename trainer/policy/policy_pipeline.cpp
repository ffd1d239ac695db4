// The passes of a policy whose layers are cut into stages: hidden states go from one to the next, gradients back.
#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "common/mesh/dist_reduce.h"
#include "trainer/policy/pipeline_run.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

Tensor Policy::room_for_hidden(const Prepared& prepared) {
    const std::int64_t rows = tensor_.kept_rows(std::ssize(prepared.batch.positions));
    return Tensor::empty(compute_, {rows, config_.hidden_size}, options_.compute_dtype, "activations");
}

// The micro-batches of a batch while some stage of this rank still works on them.
class Policy::Running {
  public:
    Running(Policy& policy, const std::vector<Sample>& samples, const std::vector<Pack>& packs)
        : policy_(policy), samples_(samples), packs_(packs), prepared_(packs.size()), ended_(packs.size()) {}

    const Prepared& at(int microbatch) {
        const auto index = static_cast<std::size_t>(microbatch);
        if (!prepared_[index])
            prepared_[index] = std::make_unique<Prepared>(policy_, samples_, packs_[index]);
        return *prepared_[index];
    }
    // One of the rank's stages is done with it.
    void end(int microbatch) {
        const auto index = static_cast<std::size_t>(microbatch);
        if (++ended_[index] == policy_.decoder_.stages()) prepared_[index].reset();
    }

  private:
    Policy& policy_;
    const std::vector<Sample>& samples_;
    const std::vector<Pack>& packs_;
    std::vector<std::unique_ptr<Prepared>> prepared_;
    std::vector<std::size_t> ended_;
};

const DecoderStage& Policy::stage(int number) const {
    const std::vector<int> own = plan_->stages_of(shard_mesh_.pipeline->rank());
    const auto found = std::find(own.begin(), own.end(), number);
    return decoder_.stage(static_cast<std::size_t>(found - own.begin()));
}

const pipeline::ActionList& Policy::own_list(bool training, int microbatches) {
    const auto [at, fresh] = own_lists_.try_emplace({training, microbatches});
    if (fresh) {
        pipeline::Schedule lists = training ? plan_->lists(microbatches) : plan_->forward_lists(microbatches);
        at->second = std::move(lists.ranks[static_cast<std::size_t>(shard_mesh_.pipeline->rank())]);
    }
    return at->second;
}

void Policy::run_forward(const std::vector<Sample>& samples, const std::vector<Pack>& packs,
                         const std::function<void(const Prepared&, const DecoderStage&, Tensor)>& head) {
    Running running(*this, samples, packs);
    StageWork work;
    work.room = [&](int microbatch) { return room_for_hidden(running.at(microbatch)); };
    work.forward = [&](int number, int microbatch, Tensor x) {
        const Prepared& now = running.at(microbatch);
        const DecoderStage& here = stage(number);
        Tensor hidden = here.forward(now.compute, now.batch.tokens, std::move(x), fsdp_, nullptr);
        if (here.heads()) head(now, here, std::move(hidden));
        running.end(microbatch);
        return here.heads() ? Tensor() : hidden;
    };
    pipeline_->run(own_list(/*training=*/false, static_cast<int>(packs.size())), work);
}

void Policy::run_schedule(const std::vector<Sample>& samples, const std::vector<Pack>& packs,
                          const std::function<Tensor(const Prepared&, const DecoderStage&, Tensor)>& loss) {
    struct Kept {
        DecoderStage::Saved saved;
        DecoderStage::WeightWork later;
        Tensor hidden;  // of the last stage, until its loss
    };
    std::map<std::pair<int, int>, Kept> kept;  // [stage, micro-batch]
    std::map<int, std::size_t> inputs_left, weights_left;
    for (const int own : plan_->stages_of(shard_mesh_.pipeline->rank()))
        inputs_left[own] = weights_left[own] = packs.size();
    Running running(*this, samples, packs);
    // The last gradients of a stage are reduced, with all that were made before.
    const auto reduce_if_last = [&](std::map<int, std::size_t>& left, int number) {
        const bool last = --left.at(number) == 0;
        fsdp_.set_requires_gradient_sync(sync_ && (last || options_.reduce_every_micro_batch));
    };
    const auto gradient_of = [&](const Prepared& now, int number, Kept& one, Tensor dy) {
        const DecoderStage& here = stage(number);
        return here.heads() ? loss(now, here, std::move(one.hidden)) : dy;
    };

    StageWork work;
    work.room = [&](int microbatch) { return room_for_hidden(running.at(microbatch)); };
    work.forward = [&](int number, int microbatch, Tensor x) {
        const Prepared& now = running.at(microbatch);
        const DecoderStage& here = stage(number);
        Kept& one = kept[{number, microbatch}];
        Tensor hidden = here.forward(now.compute, now.batch.tokens, std::move(x), fsdp_, &one.saved);
        if (!here.heads()) return hidden;
        one.hidden = std::move(hidden);
        return Tensor();
    };
    work.backward = [&](int number, int microbatch, Tensor dy) {
        const Prepared& now = running.at(microbatch);
        Kept one = std::move(kept.extract({number, microbatch}).mapped());
        --inputs_left.at(number);
        reduce_if_last(weights_left, number);
        Tensor gradient = gradient_of(now, number, one, std::move(dy));
        Tensor dx = stage(number).backward(now.compute, now.batch.tokens, std::move(gradient), fsdp_,
                                           std::move(one.saved));
        running.end(microbatch);
        return dx;
    };
    work.backward_input = [&](int number, int microbatch, Tensor dy) {
        const Prepared& now = running.at(microbatch);
        Kept& one = kept.at({number, microbatch});
        reduce_if_last(inputs_left, number);  // the head's
        Tensor gradient = gradient_of(now, number, one, std::move(dy));
        return stage(number).backward_input(now.compute, now.batch.tokens, std::move(gradient), fsdp_,
                                            std::move(one.saved), one.later);
    };
    work.backward_weight = [&](int number, int microbatch) {
        Kept one = std::move(kept.extract({number, microbatch}).mapped());
        reduce_if_last(weights_left, number);
        stage(number).backward_weight(fsdp_, std::move(one.later));
        running.end(microbatch);
    };
    pipeline_->run(own_list(/*training=*/true, static_cast<int>(packs.size())), work);
    fsdp_.set_requires_gradient_sync(sync_);
    trained_ = pipeline_->times();
    trained_micro_batches_ = static_cast<int>(packs.size());
}

std::optional<Policy::PipelineTimes> Policy::pipeline_times() const {
    const bool one_host = shard_mesh_.world->shared_memory().memory.bytes > 0;
    if (!plan_ || trained_micro_batches_ == 0 || !one_host) return {};
    // Every rank's, padded to as many as the longest has.
    struct Entry {
        std::int32_t kind = 0, stage = -1, microbatch = 0;
        double start = 0, end = 0;
    };
    comm::Communicator& group = *shard_mesh_.pipeline;
    const auto count = static_cast<std::size_t>(max_over(static_cast<double>(trained_.size()), group));
    std::vector<Entry> own(count), all(count * static_cast<std::size_t>(group.size()));
    for (std::size_t i = 0; i < trained_.size(); ++i) {
        const auto& [action, start, end] = trained_[i];
        own[i] = {static_cast<std::int32_t>(action.kind), action.stage, action.microbatch, start, end};
    }
    const auto sent = std::as_bytes(std::span(own));
    const auto received = std::as_writable_bytes(std::span(all));
    group.all_gather(ConstSpan(sent.data(), sent.size()), Span{received.data(), received.size()});
    double begin = std::numeric_limits<double>::infinity();
    for (const Entry& entry : all)
        if (entry.stage >= 0) begin = std::min(begin, entry.start);
    std::vector<std::vector<pipeline::Interval>> ranks(static_cast<std::size_t>(group.size()));
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Entry& entry = all[i];
        if (entry.stage < 0) continue;
        const pipeline::Action action{static_cast<pipeline::ActionKind>(entry.kind), entry.stage,
                                      entry.microbatch};
        ranks[i / count].push_back({action, entry.start - begin, entry.end - begin});
    }
    PipelineTimes times{pipeline::timing_of(std::move(ranks)), {}};
    times.computed = pipeline::simulate(plan_->compute(trained_micro_batches_),
                                        pipeline::mean_times(times.measured, plan_->stages()));
    return times;
}

}  // namespace tandem::trainer
