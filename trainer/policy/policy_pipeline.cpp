// The passes of a policy whose layers are cut into stages: hidden states go from one to the next, gradients back.
#include <algorithm>

#include "trainer/pipeline/schedule.h"
#include "trainer/policy/policy.h"
#include "trainer/policy/stage_run.h"

namespace tandem::trainer {

Tensor Policy::room_for_hidden(const Prepared& prepared) {
    const std::int64_t rows = tensor_.kept_rows(std::ssize(prepared.batch.positions));
    return Tensor::empty(compute_, {rows, config_.hidden_size}, options_.compute_dtype, "activations");
}

void Policy::run_forward(const std::vector<Sample>& samples, const std::vector<Pack>& packs,
                         const std::function<void(const Prepared&, Tensor)>& head) {
    std::unique_ptr<Prepared> one;
    const auto prepared = [&](int microbatch) -> const Prepared& {
        const Pack& pack = packs[static_cast<std::size_t>(microbatch)];
        if (!one || &one->pack != &pack) one = std::make_unique<Prepared>(*this, samples, pack);
        return *one;
    };
    StageWork work;
    work.room = [&](int microbatch) { return room_for_hidden(prepared(microbatch)); };
    work.forward = [&](int microbatch, Tensor x) {
        const Prepared& now = prepared(microbatch);
        Tensor hidden = decoder_.forward(now.compute, now.batch.tokens, std::move(x), fsdp_, nullptr);
        if (!part_.heads) return hidden;
        head(now, std::move(hidden));
        return Tensor();
    };
    pipeline::ActionList list;
    for (std::size_t i = 0; i < packs.size(); ++i) {
        list.push_back(
            {pipeline::ActionKind::forward, shard_mesh_.pipeline->rank(), static_cast<int>(i), {}});
    }
    run_stage(list, *shard_mesh_.pipeline, compute_, work);
}

void Policy::run_schedule(const std::vector<Sample>& samples, const std::vector<Pack>& packs,
                          const std::function<Tensor(const Prepared&, Tensor)>& loss) {
    // Packs of nothing fill up what the schedule needs at least: they take part in every collective.
    std::vector<Pack> all = packs;
    all.resize(std::max(all.size(), static_cast<std::size_t>(stages())));
    struct Running {
        std::unique_ptr<Prepared> prepared;
        Decoder::Saved saved;
        Tensor hidden;  // of the last stage, until its loss
    };
    std::vector<Running> running(all.size());
    const auto at = [&](int microbatch) -> Running& {
        const auto index = static_cast<std::size_t>(microbatch);
        if (!running[index].prepared)
            running[index].prepared = std::make_unique<Prepared>(*this, samples, all[index]);
        return running[index];
    };
    StageWork work;
    work.room = [&](int microbatch) { return room_for_hidden(*at(microbatch).prepared); };
    work.forward = [&](int microbatch, Tensor x) {
        Running& one = at(microbatch);
        Tensor hidden = decoder_.forward(one.prepared->compute, one.prepared->batch.tokens, std::move(x),
                                         fsdp_, &one.saved);
        if (!part_.heads) return hidden;
        one.hidden = std::move(hidden);
        return Tensor();
    };
    work.backward = [&](int microbatch, Tensor gradient) {
        Running one = std::move(at(microbatch));
        const bool last = microbatch + 1 == static_cast<int>(all.size());
        fsdp_.set_requires_gradient_sync(sync_ && (last || options_.reduce_every_micro_batch));
        if (part_.heads) gradient = loss(*one.prepared, std::move(one.hidden));
        return decoder_.backward(one.prepared->compute, one.prepared->batch.tokens, std::move(gradient),
                                 fsdp_, std::move(one.saved));
    };
    const pipeline::Schedule schedule =
        pipeline::make_schedule(options_.schedule, stages(), 1, static_cast<int>(all.size()));
    run_stage(schedule.ranks[static_cast<std::size_t>(shard_mesh_.pipeline->rank())], *shard_mesh_.pipeline,
              compute_, work);
}

}  // namespace tandem::trainer
