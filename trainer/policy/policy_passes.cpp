// The passes of a policy: packs and layouts (data, context), the model (nn), the loss, and the step.
#include <array>
#include <optional>

#include "common/mesh/dist_reduce.h"
#include "common/ops/elementwise.h"
#include "common/trace.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/policy/micro_batch_loss.h"
#include "trainer/policy/pack_plan.h"
#include "trainer/policy/policy.h"
#include "trainer/policy/token_buffer.h"

namespace tandem::trainer {

Policy::Prepared::Prepared(Policy& policy, const std::vector<Sample>& samples, const Pack& of)
    : pack(of),
      batch(make_micro_batch(samples, of, use_zigzag(policy.options_, policy.cp(), of), policy.cp(),
                             policy.mesh_.coordinate("cp"))),
      context(make_context(batch.layout, *policy.shard_mesh_.context, policy.compute_, policy.ring_)),
      compute{policy.compute_, policy.options_.compute_dtype, *context, policy.tensor_, batch.positions} {}

std::vector<Pack> Policy::own_packs(const std::vector<Sample>& samples, bool training) const {
    if (std::vector<Pack> chosen = options_.packs ? options_.packs() : std::vector<Pack>(); !chosen.empty())
        return chosen;
    auto plan = pack_plan(options_, cp(), shard_mesh_.batch_ranks, samples,
                          admitted_packs(plan_ ? &*plan_ : nullptr, training));
    return std::move(plan[static_cast<std::size_t>(shard_mesh_.batch_rank)]);
}

Scores Policy::score(const std::vector<Sample>& samples, const ScoreOptions& wanted) {
    const trace::Scope scope(wanted.reference ? "reference" : "logprobs", "trainer");
    const MemoryPhase phase("logprobs");
    require(!wanted.reference || reference_, "there is no reference model yet");
    own_allocations();
    wake_for(Sleep::optimizer);
    require(!wanted.values || options_.value_head, "values of a model without a value head");
    check_samples(samples, config_.vocab_size);
    TokenBuffer buffer(samples, TokenBuffer::kScores, shard_mesh_.world->memory());
    if (wanted.reference) fsdp_.gather_from(*reference_);
    const auto head = [&](const Prepared& one, const DecoderStage& stage, Tensor hidden) {
        const std::size_t n = one.batch.owners.size();
        std::array<std::vector<float>, 3> found{std::vector<float>(n),
                                                std::vector<float>(wanted.entropies ? n : 0),
                                                std::vector<float>(wanted.values ? n : 0)};
        stage.score(one.compute, std::move(hidden), one.targets(), fsdp_, wanted.temperature,
                    {found[0], found[1], found[2]});
        for (std::size_t kind = 0; kind < found.size(); ++kind) {
            for (std::size_t i = 0; i < found[kind].size(); ++i)
                buffer.put(kind, one.batch.owners[i], found[kind][i]);
        }
    };
    const std::vector<Pack> packs = own_packs(samples, /*training=*/false);
    if (plan_) {
        run_forward(samples, packs, head);
    } else {
        for (const Pack& pack : packs) {
            const Prepared one(*this, samples, pack);
            const DecoderStage& stage = decoder_.stage();
            head(one, stage, stage.forward(one.compute, one.batch.tokens, {}, fsdp_, nullptr));
        }
    }
    fsdp_.finish();
    fsdp_.gather_from(fsdp_.state());
    buffer.reduce(*shard_mesh_.loss);
    return {buffer.get(0), wanted.entropies ? buffer.get(1) : Scores::PerToken(),
            wanted.values ? buffer.get(2) : Scores::PerToken()};
}

StepStats Policy::accumulate(const std::vector<Sample>& samples, const LossOptions& loss) {
    const trace::Scope scope("forward_backward", "trainer");
    const MemoryPhase phase("forward_backward");
    own_allocations();
    wake_for(Sleep::optimizer);
    check_samples(samples, config_.vocab_size);
    // The loss is a sum over all ranks, divided by what all of them know; so gradients are sums, too.
    BatchLoss batch_loss(samples, loss);
    StepStats stats;
    stats.target_tokens = batch_loss.target_tokens();
    for (const Sample& sample : samples) stats.tokens += static_cast<std::int64_t>(sample.tokens.size());
    if (stats.target_tokens == 0) {  // on every rank alike: nothing to learn
        fsdp_.finish_gradients();
        return stats;
    }
    gradients_in_use_ = true;
    LossSums sums;
    std::optional<TokenBuffer> logprobs;
    if (loss.on_policy) logprobs.emplace(samples, TokenBuffer::kFoundByAnUpdate, shard_mesh_.world->memory());
    const auto head = [&](const Prepared& one, const DecoderStage& stage, Tensor hidden) {
        MicroBatchLoss part(batch_loss, samples, one.pack, one.batch, *shard_mesh_.context, sums,
                            logprobs ? &*logprobs : nullptr);
        return stage.loss(one.compute, std::move(hidden), one.targets(), fsdp_, part);
    };
    const std::vector<Pack> packs = own_packs(samples, /*training=*/true);
    stats.micro_batches = static_cast<int>(packs.size());
    if (plan_) {
        run_schedule(samples, packs, head);
    } else {
        for (const Pack& pack : packs) {
            const Prepared one(*this, samples, pack);
            fsdp_.set_requires_gradient_sync(sync_ &&
                                             (&pack == &packs.back() || options_.reduce_every_micro_batch));
            const DecoderStage& stage = decoder_.stage();
            DecoderStage::Saved saved;
            Tensor hidden = stage.forward(one.compute, one.batch.tokens, {}, fsdp_, &saved);
            Tensor gradient = head(one, stage, std::move(hidden));
            stage.backward(one.compute, one.batch.tokens, std::move(gradient), fsdp_, std::move(saved));
        }
    }
    fsdp_.finish();
    fsdp_.finish_gradients();
    reduce_sums(sums.values, *shard_mesh_.loss);
    sums.ratio_max = max_over(sums.ratio_max, *shard_mesh_.loss);
    if (logprobs) {
        logprobs->reduce(*shard_mesh_.loss);
        stats.logprobs = logprobs->get(0);
    }
    stats.loss = batch_loss.mean_loss(sums);
    stats.set_means(sums);
    return stats;
}

const Tensor& Policy::reduced_gradients() const {
    require(!fsdp_.has_unreduced_gradients(),
            "gradients are not reduced yet: set_requires_gradient_sync(true) before the last accumulate");
    return fsdp_.gradients();
}

}  // namespace tandem::trainer
