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

template <typename Body>
int Policy::for_each_micro_batch(const std::vector<Sample>& samples, const Body& body) {
    const auto plan = pack_plan(options_, cp(), shard_mesh_.batch_ranks, samples);
    const std::vector<Pack>& packs = plan[static_cast<std::size_t>(shard_mesh_.batch_rank)];
    for (const Pack& pack : packs) {
        const MicroBatch batch =
            make_micro_batch(samples, pack, use_zigzag(options_, cp(), pack), cp(), mesh_.coordinate("cp"));
        const auto context = make_context(batch.layout, *shard_mesh_.context, compute_, ring_);
        body(Compute{compute_, options_.compute_dtype, *context, tensor_, batch.positions}, pack, batch,
             &pack == &packs.back());
    }
    return static_cast<int>(packs.size());
}

Scores Policy::score(const std::vector<Sample>& samples, const ScoreOptions& wanted) {
    const trace::Scope scope(wanted.reference ? "reference" : "logprobs", "trainer");
    const MemoryPhase phase("logprobs");
    require(!wanted.reference || reference_, "there is no reference model yet");
    wake_for(Sleep::optimizer);
    require(!wanted.values || options_.value_head, "values of a model without a value head");
    check_samples(samples, config_.vocab_size);
    TokenBuffer buffer(samples, 3, shard_mesh_.world->memory());
    if (wanted.reference) fsdp_.gather_from(*reference_);
    for_each_micro_batch(samples, [&](const Compute& run, const Pack&, const MicroBatch& batch, bool) {
        const std::size_t n = batch.owners.size();
        std::array<std::vector<float>, 3> found{std::vector<float>(n),
                                                std::vector<float>(wanted.entropies ? n : 0),
                                                std::vector<float>(wanted.values ? n : 0)};
        decoder_.score(run, decoder_.forward(run, batch.tokens, {}, fsdp_, nullptr),
                       {batch.target_rows, batch.target_tokens}, fsdp_, wanted.temperature,
                       {found[0], found[1], found[2]});
        for (std::size_t kind = 0; kind < found.size(); ++kind) {
            for (std::size_t i = 0; i < found[kind].size(); ++i)
                buffer.put(kind, batch.owners[i], found[kind][i]);
        }
    });
    fsdp_.finish();
    fsdp_.gather_from(fsdp_.state());
    buffer.reduce(*shard_mesh_.loss);
    return {buffer.get(0), wanted.entropies ? buffer.get(1) : Scores::PerToken(),
            wanted.values ? buffer.get(2) : Scores::PerToken()};
}

StepStats Policy::accumulate(const std::vector<Sample>& samples, const LossOptions& loss) {
    const trace::Scope scope("forward_backward", "trainer");
    const MemoryPhase phase("forward_backward");
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
    if (loss.on_policy) logprobs.emplace(samples, 1, shard_mesh_.world->memory());
    const auto run_one = [&](const Compute& run, const Pack& pack, const MicroBatch& batch, bool last) {
        MicroBatchLoss part(batch_loss, samples, pack, batch, *shard_mesh_.context, sums,
                            logprobs ? &*logprobs : nullptr);
        fsdp_.set_requires_gradient_sync(sync_ && (last || options_.reduce_every_micro_batch));
        Decoder::Saved saved;
        Tensor x = decoder_.forward(run, batch.tokens, {}, fsdp_, &saved);
        Tensor dx = decoder_.loss(run, std::move(x), {batch.target_rows, batch.target_tokens}, fsdp_, part);
        decoder_.backward(run, batch.tokens, std::move(dx), fsdp_, std::move(saved));
    };
    stats.micro_batches = for_each_micro_batch(samples, run_one);
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
