// The passes of a policy: packs and layouts (data, context), the model (nn), the loss, and the step.
#include <array>

#include "common/ops/elementwise.h"
#include "common/trace.h"
#include "trainer/fsdp/reduce_sums.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/policy/micro_batch_loss.h"
#include "trainer/policy/pack_plan.h"
#include "trainer/policy/policy_impl.h"
#include "trainer/policy/token_buffer.h"

namespace tandem::trainer {

template <typename Body>
int Policy::Impl::for_each_micro_batch(const std::vector<Sample>& samples, const Body& body) {
    const auto plan = pack_plan(options, cp(), shard_mesh.batch_ranks, samples);
    const std::vector<Pack>& packs = plan[static_cast<std::size_t>(shard_mesh.batch_rank)];
    for (const Pack& pack : packs) {
        const MicroBatch batch =
            make_micro_batch(samples, pack, use_zigzag(options, cp(), pack), cp(), mesh.coordinate("cp"));
        const auto context = make_context(batch.layout, *shard_mesh.context, compute, ring);
        body(Compute{compute, options.compute_dtype, *context, batch.positions}, pack, batch,
             &pack == &packs.back());
    }
    return static_cast<int>(packs.size());
}

Scores Policy::Impl::score(const std::vector<Sample>& samples, const ScoreOptions& wanted) {
    const trace::Scope scope(wanted.reference ? "reference" : "logprobs", "trainer");
    const MemoryPhase phase("logprobs");
    require(!wanted.reference || reference, "there is no reference model yet");
    wake_for(Sleep::optimizer);
    require(!wanted.values || options.value_head, "values of a model without a value head");
    check_samples(samples, config.vocab_size);
    TokenBuffer buffer(samples, 3, shard_mesh.world->memory());
    if (wanted.reference) fsdp.gather_from(*reference);
    for_each_micro_batch(samples, [&](const Compute& run, const Pack&, const MicroBatch& batch, bool) {
        const std::size_t n = batch.owners.size();
        std::array<std::vector<float>, 3> found{std::vector<float>(n),
                                                std::vector<float>(wanted.entropies ? n : 0),
                                                std::vector<float>(wanted.values ? n : 0)};
        decoder.score(run, batch.tokens, {batch.target_rows, batch.target_tokens}, fsdp, wanted.temperature,
                      {found[0], found[1], found[2]});
        for (std::size_t kind = 0; kind < found.size(); ++kind) {
            for (std::size_t i = 0; i < found[kind].size(); ++i)
                buffer.put(kind, batch.owners[i], found[kind][i]);
        }
    });
    fsdp.finish();
    fsdp.gather_from(fsdp.state());
    buffer.reduce(*shard_mesh.world);
    return {buffer.get(0), wanted.entropies ? buffer.get(1) : Scores::PerToken(),
            wanted.values ? buffer.get(2) : Scores::PerToken()};
}

StepStats Policy::Impl::accumulate(const std::vector<Sample>& samples, const LossOptions& loss) {
    const trace::Scope scope("forward_backward", "trainer");
    const MemoryPhase phase("forward_backward");
    wake_for(Sleep::optimizer);
    check_samples(samples, config.vocab_size);
    // The reduction averages over all ranks; the loss is a sum over them.
    BatchLoss batch_loss(samples, loss, shard_mesh.world->size());
    StepStats stats;
    stats.target_tokens = batch_loss.target_tokens();
    for (const Sample& sample : samples) stats.tokens += static_cast<std::int64_t>(sample.tokens.size());
    if (stats.target_tokens == 0) {  // on every rank alike: nothing to learn
        fsdp.finish_gradients();
        return stats;
    }
    gradients_in_use = true;
    LossSums sums;
    const auto run_one = [&](const Compute& run, const Pack& pack, const MicroBatch& batch, bool last) {
        MicroBatchLoss part(batch_loss, samples, pack, batch, *shard_mesh.context, sums);
        fsdp.set_requires_gradient_sync(sync && (last || options.reduce_every_micro_batch));
        decoder.loss(run, batch.tokens, {batch.target_rows, batch.target_tokens}, fsdp, part);
    };
    stats.micro_batches = for_each_micro_batch(samples, run_one);
    fsdp.finish();
    fsdp.finish_gradients();
    reduce_sums(sums.values, *shard_mesh.world);
    sums.ratio_max = max_over(sums.ratio_max, *shard_mesh.world);
    stats.loss = batch_loss.mean_loss(sums);
    stats.set_means(sums);
    return stats;
}

const Tensor& Policy::Impl::reduced_gradients() const {
    require(!fsdp.has_unreduced_gradients(),
            "gradients are not reduced yet: set_requires_gradient_sync(true) before the last accumulate");
    return fsdp.gradients();
}

double Policy::Impl::apply(double lr) {
    const trace::Scope scope("optimizer", "trainer");
    const MemoryPhase phase("optimizer");
    wake_for(Sleep::none);
    const double norm = global_norm(compute, reduced_gradients(), fsdp.communicator());
    optimizer.step(compute, fsdp.state(), fsdp.gradients(), lr, clip_scale(norm, options.clip_grad_norm));
    ops::fill_zero(compute, fsdp.gradients());
    gradients_in_use = false;
    return norm;
}

}  // namespace tandem::trainer
