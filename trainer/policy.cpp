// Ties the training core together: packs and layouts (data, context), the model (nn), its shards (fsdp), the
// loss and the optimizer.
#include "trainer/policy.h"

#include <algorithm>
#include <array>

#include "common/ops/elementwise.h"
#include "common/trace.h"
#include "trainer/data/micro_batch.h"
#include "trainer/fsdp/fully_shard.h"
#include "trainer/fsdp/reduce_sums.h"
#include "trainer/fsdp/shard_mesh.h"
#include "trainer/initial_weights.h"
#include "trainer/nn/decoder.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"

namespace tandem::trainer {
namespace {

// Keys of a micro-batch that travel around the ring: from this size on a thread of its own pays.
constexpr std::int64_t kRingOverlapTokens = 1024;

model::ModelConfig checked(model::ModelConfig config) {
    config.validate("model");
    return config;
}

std::vector<std::string> shard_axes_of(const PolicyOptions& options, const DeviceMesh& mesh) {
    if (!options.shard_axes.empty()) return options.shard_axes;
    std::vector<std::string> axes = mesh.names();
    if (!options.shard_over_cp) std::erase(axes, "cp");
    return axes;
}

// Sums over target tokens, of all micro-batches and ranks in the end.
struct LossSums {
    double loss = 0;
    double clipped = 0;
    double kl = 0;
};

std::int64_t count_targets(const std::vector<Sample>& samples) {
    std::int64_t count = 0;
    for (const Sample& sample : samples) {
        if (sample.target_mask.empty()) continue;
        count += std::count_if(sample.target_mask.begin() + 1, sample.target_mask.end(),
                               [](std::uint8_t bit) { return bit != 0; });
    }
    return count;
}

}  // namespace

struct Policy::Impl {
    Impl(DeviceMesh mesh_in, model::ModelConfig config_in, PolicyOptions options_in)
        : mesh(std::move(mesh_in)),
          config(checked(std::move(config_in))),
          options(std::move(options_in)),
          shard_mesh(mesh, shard_axes_of(options, mesh)),
          decoder(config, options.logits_chunk_rows, options.checkpointing),
          fsdp(decoder.parameters(), decoder.groups(), *shard_mesh.shards, *shard_mesh.replicas, compute,
               {options.compute_dtype, options.reshard_after_forward}),
          optimizer(fsdp.layout().numel(), options.beta1, options.beta2, options.eps, options.weight_decay),
          ring(options.max_tokens_per_rank >= kRingOverlapTokens && shard_mesh.context->size() > 1
                   ? Stream::make_worker("ring")
                   : Stream::make_inline()) {
        require(options.max_tokens_per_rank > 0, "max_tokens_per_rank is {}", options.max_tokens_per_rank);
        initialise();
        parameters = as_dtensors(fsdp.shards());
    }

    int cp() const { return shard_mesh.context->size(); }

    void initialise() {
        const InitialWeights init{options.seed, options.init_std, config.num_hidden_layers};
        const std::vector<Parameter>& all = decoder.parameters();
        for (std::size_t i = 0; i < all.size(); ++i) {
            const FlatShards::Entry& entry = fsdp.layout().entry(static_cast<int>(i));
            const Tensor local = fsdp.layout().local(fsdp.shards(), static_cast<int>(i));
            fill_initial_weights(init, all[i].name, all[i].shape, entry.first_row * entry.row_numel,
                                 local.values<float>());
        }
    }

    std::vector<std::pair<std::string, DTensor>> as_dtensors(const Tensor& flat) {
        std::vector<std::pair<std::string, DTensor>> result;
        const std::vector<Parameter>& all = decoder.parameters();
        for (std::size_t i = 0; i < all.size(); ++i) {
            result.emplace_back(all[i].name,
                                DTensor::from_local(fsdp.layout().local(flat, static_cast<int>(i)),
                                                    shard_mesh.mesh, shard_mesh.placements, all[i].shape));
        }
        return result;
    }

    // What a sample takes of a pack: with its own padding, where each sequence is padded apart.
    std::vector<std::int64_t> packed_lengths(const std::vector<Sample>& samples) const {
        const bool zigzag = cp() > 1 && options.context == PolicyOptions::ContextMode::zigzag;
        std::vector<std::int64_t> lengths;
        for (const Sample& sample : samples) {
            const auto length = static_cast<std::int64_t>(sample.tokens.size());
            lengths.push_back(zigzag ? round_up(length, 2 * cp()) : length);
        }
        return lengths;
    }

    bool use_zigzag(const Pack& pack) const {
        if (cp() == 1 || pack.samples.empty()) return false;
        if (options.context != PolicyOptions::ContextMode::automatic) {
            return options.context == PolicyOptions::ContextMode::zigzag;
        }
        return pack.samples.size() == 1 &&
               round_up(pack.tokens, 2 * cp()) <= options.max_tokens_per_rank * cp();
    }

    // body(compute, batch, is_last) on this rank's part of every micro-batch, in turn.
    template <typename Body>
    int for_each_micro_batch(const std::vector<Sample>& samples, const Body& body) {
        const auto plan =
            plan_packs(packed_lengths(samples), shard_mesh.batch_ranks, options.max_tokens_per_rank * cp());
        const std::vector<Pack>& packs = plan[static_cast<std::size_t>(shard_mesh.batch_rank)];
        for (const Pack& pack : packs) {
            const MicroBatch batch =
                make_micro_batch(samples, pack, use_zigzag(pack), cp(), mesh.coordinate("cp"));
            const auto context = make_context(batch.layout, *shard_mesh.context, compute, ring);
            body(Compute{compute, options.compute_dtype, *context, batch.positions}, batch,
                 &pack == &packs.back());
        }
        return static_cast<int>(packs.size());
    }

    std::vector<std::vector<float>> logprobs(const std::vector<Sample>& samples) {
        const trace::Scope scope("logprobs", "trainer");
        check_samples(samples, config.vocab_size);
        std::vector<std::size_t> begins;
        std::size_t total = 0;
        for (const Sample& sample : samples) {
            begins.push_back(total);
            total += sample.tokens.size();
        }
        // Each target is some one rank's: the sum over ranks only adds zeros.
        const Tensor all = Tensor::zeros({static_cast<std::int64_t>(total)}, DType::float32, "logprobs",
                                         shard_mesh.world->memory());
        const std::span<float> values = all.values<float>();
        for_each_micro_batch(samples, [&](const Compute& run, const MicroBatch& batch, bool) {
            std::vector<float> found(batch.owners.size());
            decoder.logprobs(run, batch.tokens, {batch.target_rows, batch.target_tokens}, fsdp, found);
            for (std::size_t i = 0; i < found.size(); ++i) {
                const MicroBatch::Owner& owner = batch.owners[i];
                values[begins[static_cast<std::size_t>(owner.sample)] +
                       static_cast<std::size_t>(owner.index)] = found[i];
            }
        });
        fsdp.finish();
        if (total > 0) shard_mesh.world->all_reduce(all.span(), DType::float32);
        std::vector<std::vector<float>> result;
        for (std::size_t i = 0; i < samples.size(); ++i) {
            const auto part = values.subspan(begins[i], samples[i].tokens.size());
            result.emplace_back(part.begin(), part.end());
        }
        return result;
    }

    StepStats accumulate(const std::vector<Sample>& samples, const LossFunction& loss) {
        const trace::Scope scope("forward_backward", "trainer");
        check_samples(samples, config.vocab_size);
        StepStats stats;
        stats.target_tokens = count_targets(samples);
        for (const Sample& sample : samples) stats.tokens += static_cast<std::int64_t>(sample.tokens.size());
        if (stats.target_tokens == 0) {  // on every rank alike: nothing to learn
            fsdp.finish_gradients();
            return stats;
        }

        // The reduction averages over all ranks; the loss is a mean over all targets. So each rank's sum of
        // gradients is weighted with ranks / targets.
        const auto targets = static_cast<double>(stats.target_tokens);
        const auto weight = static_cast<float>(shard_mesh.world->size() / targets);
        LossSums sums;
        const auto run_one = [&](const Compute& run, const MicroBatch& batch, bool last) {
            const auto target_loss = [&](std::int64_t first, std::span<const float> logprobs,
                                         std::span<float> dlogprobs) {
                for (std::size_t i = 0; i < logprobs.size(); ++i) {
                    const MicroBatch::Owner& owner = batch.owners[static_cast<std::size_t>(first) + i];
                    dlogprobs[i] = weight * add_token(samples, owner, logprobs[i], loss, sums);
                }
            };
            fsdp.set_requires_gradient_sync(sync && (last || options.reduce_every_micro_batch));
            decoder.loss(run, batch.tokens, {batch.target_rows, batch.target_tokens}, fsdp, target_loss);
        };
        stats.micro_batches = for_each_micro_batch(samples, run_one);
        fsdp.finish();
        fsdp.finish_gradients();
        std::array totals{sums.loss, sums.clipped, sums.kl};
        reduce_sums(totals, *shard_mesh.world);
        stats.loss = totals[0] / targets;
        stats.clip_fraction = totals[1] / targets;
        stats.kl = totals[2] / targets;
        return stats;
    }

    // Adds one token's loss to the sums; returns dloss/dlogprob.
    static float add_token(const std::vector<Sample>& samples, const MicroBatch::Owner& owner, float logprob,
                           const LossFunction& loss, LossSums& sums) {
        const Sample& sample = samples[static_cast<std::size_t>(owner.sample)];
        const auto at = [&](const std::vector<float>& values) {
            return values.empty() ? 0.0f : values[static_cast<std::size_t>(owner.index)];
        };
        const TokenLoss token = loss({logprob, at(sample.advantages), at(sample.old_logprobs)});
        sums.loss += token.loss;
        sums.clipped += token.clipped;
        sums.kl += token.kl;
        return token.dlogprob;
    }

    const Tensor& reduced_gradients() const {
        require(!fsdp.has_unreduced_gradients(),
                "gradients are not reduced yet: set_requires_gradient_sync(true) before the last accumulate");
        return fsdp.gradients();
    }

    double apply(double lr) {
        const trace::Scope scope("optimizer", "trainer");
        const double norm = global_norm(reduced_gradients(), fsdp.communicator());
        optimizer.step(compute, fsdp.shards(), fsdp.gradients(), lr,
                       clip_scale(norm, options.clip_grad_norm));
        ops::fill_zero(compute, fsdp.gradients());
        return norm;
    }

    void load_parameter(const std::string& name, const Tensor& full) {
        const std::vector<Parameter>& all = decoder.parameters();
        const auto found =
            std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
        require(found != all.end(), "the model has no parameter {}", name);
        require(full.shape() == found->shape, "{} has shape {}, not {}", name, to_string(found->shape),
                to_string(full.shape()));
        const auto index = static_cast<int>(found - all.begin());
        const FlatShards::Entry& entry = fsdp.layout().entry(index);
        ops::cast(compute, full.rows(entry.first_row, entry.local_rows),
                  fsdp.layout().local(fsdp.shards(), index));
    }

    DeviceMesh mesh;
    model::ModelConfig config;
    PolicyOptions options;
    ShardMesh shard_mesh;
    Stream compute = Stream::make_inline();
    Decoder decoder;
    FullyShard fsdp;
    AdamW optimizer;
    Stream ring;
    bool sync = true;
    std::vector<std::pair<std::string, DTensor>> parameters;
};

Policy::Policy(DeviceMesh mesh, model::ModelConfig config, PolicyOptions options)
    : impl_(std::make_unique<Impl>(std::move(mesh), std::move(config), std::move(options))) {}
Policy::~Policy() = default;

std::vector<std::vector<float>> Policy::logprobs(const std::vector<Sample>& samples) {
    return impl_->logprobs(samples);
}
StepStats Policy::accumulate(const std::vector<Sample>& samples, const LossFunction& loss) {
    return impl_->accumulate(samples, loss);
}
void Policy::set_requires_gradient_sync(bool sync) {
    impl_->sync = sync;
    impl_->fsdp.set_requires_gradient_sync(sync);
}
double Policy::apply(double lr) {
    return impl_->apply(lr);
}
void Policy::reset_optimizer() {
    impl_->optimizer.reset(impl_->compute);
}
const model::ModelConfig& Policy::config() const {
    return impl_->config;
}
const DeviceMesh& Policy::mesh() const {
    return impl_->mesh;
}
const std::vector<std::pair<std::string, DTensor>>& Policy::parameters() const {
    return impl_->parameters;
}
std::vector<std::pair<std::string, DTensor>> Policy::gradients() const {
    return impl_->as_dtensors(impl_->reduced_gradients());
}
void Policy::load_parameter(const std::string& name, const Tensor& full) {
    impl_->load_parameter(name, full);
}

}  // namespace tandem::trainer
