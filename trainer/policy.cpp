// Ties the training core together: packs and layouts (data, context), the model (nn), its shards (fsdp), the
// loss and the optimizer.
#include "trainer/policy.h"

#include <algorithm>
#include <array>
#include <optional>

#include "common/log.h"
#include "common/ops/elementwise.h"
#include "common/tensor/host_access.h"
#include "common/trace.h"
#include "trainer/data/micro_batch.h"
#include "trainer/fsdp/fully_shard.h"
#include "trainer/fsdp/reduce_sums.h"
#include "trainer/fsdp/shard_mesh.h"
#include "trainer/initial_weights.h"
#include "trainer/micro_batch_loss.h"
#include "trainer/nn/decoder.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/pack_plan.h"
#include "trainer/token_buffer.h"

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

}  // namespace

struct Policy::Impl {
    using Sleep = Policy::Sleep;

    Impl(DeviceMesh mesh_in, model::ModelConfig config_in, PolicyOptions options_in)
        : mesh(std::move(mesh_in)),
          config(checked(std::move(config_in))),
          options(std::move(options_in)),
          shard_mesh(mesh, shard_axes_of(options, mesh)),
          decoder(config, {options.logits_chunk_rows, options.checkpointing, options.value_head}),
          fsdp(decoder.parameters(), decoder.groups(), *shard_mesh.shards, *shard_mesh.replicas, compute,
               {options.compute_dtype, options.reshard_after_forward, options.offload.parameters}),
          optimizer(compute, fsdp.layout().numel(), options.beta1, options.beta2, options.eps,
                    options.weight_decay, options.offload.optimizer ? options.offload.directory : ""),
          ring(shard_mesh.context->size() > 1 && (options.max_tokens_per_rank >= kRingOverlapTokens ||
                                                  options.device.type != DeviceType::cpu)
                   ? Stream::make(options.device, "ring")
                   : Stream::make_inline()) {
        if (options.value_head) {
            const int head = static_cast<int>(decoder.parameters().size()) - 1;  // the last of the flat shard
            optimizer.set_tail(fsdp.layout().entry(head).offset, options.value_lr_factor);
        }
        require(options.max_tokens_per_rank > 0, "max_tokens_per_rank is {}", options.max_tokens_per_rank);
        initialise();
        parameters = as_dtensors(fsdp.shards(), 0, model_parameters());
        extra_parameters = as_dtensors(fsdp.shards(), model_parameters(), decoder.parameters().size());
        settle();
    }

    // --- what is where between calls

    void park(FlatState& state) { state.park(options.offload.directory); }

    // Everything where it belongs when nobody holds it: offloaded or asleep in the tier, else in memory.
    void settle() {
        const bool asleep = level == Sleep::all;
        place(fsdp.state(), holders == 0 && (asleep || options.offload.parameters));
        if (reference) place(*reference, holders == 0 && (asleep || options.offload.parameters));
        for (FlatState* moment : {&optimizer.exp_avg(), &optimizer.exp_avg_sq()})
            place(*moment, optimizer_holders == 0 && (level != Sleep::none || options.offload.optimizer));
    }
    void place(FlatState& state, bool parked) { parked ? park(state) : state.fetch(); }

    void sleep(Sleep wanted) {
        if (wanted == level) return;
        require(options.device == Device{}, "the policy is on {}: it cannot sleep",
                to_string(options.device));
        level = wanted;
        settle();
        if (level == Sleep::all) {
            require(!gradients_in_use, "gradients that were not applied cannot sleep");
            fsdp.free_buffers();
            released_gradients = fsdp.release_gradients();
        } else if (!released_gradients.empty()) {
            released_gradients.clear();
            fsdp.zero_gradients();
        }
        if (level != Sleep::none) trim_cpu_pool();
    }

    // Keeps what is offloaded or asleep in memory while it lives.
    class Hold {
      public:
        Hold(Impl& impl, bool optimizer) : impl_(impl), optimizer_(optimizer) {
            impl_.hold(+1, optimizer_);
            impl_.compute.synchronize();
        }
        ~Hold() {
            try {
                impl_.hold(-1, optimizer_);
            } catch (const std::exception& error) {
                spdlog::error("state stays in memory: {}", error.what());
            }
        }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

      private:
        Impl& impl_;
        bool optimizer_;
    };

    void check_resident() {
        require(fsdp.state().resident(), "the parameters are in the tier: hold a Policy::Residence");
    }

    void hold(int change, bool with_optimizer) {
        holders += change;
        if (with_optimizer) optimizer_holders += change;
        settle();
    }

    std::size_t model_parameters() const {
        return decoder.parameters().size() - (options.value_head ? 1 : 0);
    }

    int cp() const { return shard_mesh.context->size(); }

    void initialise() {
        const InitialWeights init{options.seed, options.init_std, config.num_hidden_layers};
        const std::vector<Parameter>& all = decoder.parameters();
        HostAccess access;
        compute.synchronize();
        for (std::size_t i = 0; i < model_parameters(); ++i) {  // a value head stays zero
            const FlatShards::Entry& entry = fsdp.layout().entry(static_cast<int>(i));
            const Tensor local = fsdp.layout().local(fsdp.shards(), static_cast<int>(i));
            const bool here = local.device().type == DeviceType::cpu;
            const Tensor host =
                here ? local : Tensor::empty(local.shape(), local.dtype(), "initial weights", pinned_pool());
            fill_initial_weights(init, all[i].name, all[i].shape, entry.first_row * entry.row_numel,
                                 host.values<float>());
            if (!here) access.write(host, local);
        }
    }

    // Parameters [first, last) of a flat shard.
    std::vector<std::pair<std::string, DTensor>> as_dtensors(const Tensor& flat, std::size_t first,
                                                             std::size_t last) const {
        std::vector<std::pair<std::string, DTensor>> result;
        const std::vector<Parameter>& all = decoder.parameters();
        for (std::size_t i = first; i < last; ++i) {
            result.emplace_back(all[i].name,
                                DTensor::from_local(fsdp.layout().local(flat, static_cast<int>(i)),
                                                    shard_mesh.mesh, shard_mesh.placements, all[i].shape));
        }
        return result;
    }

    // body(compute, pack, batch, is_last) on this rank's part of every micro-batch, in turn.
    template <typename Body>
    int for_each_micro_batch(const std::vector<Sample>& samples, const Body& body) {
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

    Scores score(const std::vector<Sample>& samples, const ScoreOptions& wanted) {
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
            decoder.score(run, batch.tokens, {batch.target_rows, batch.target_tokens}, fsdp,
                          wanted.temperature, {found[0], found[1], found[2]});
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

    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) {
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

    void set_reference(const std::function<void()>& load) {
        if (!reference) {
            reference.emplace(compute, fsdp.layout().numel(), options.compute_dtype, "reference",
                              fsdp.memory());
        }
        const Hold held(*this, false);
        Tensor own;
        if (load) {
            own = Tensor::empty(compute, {fsdp.layout().numel()}, DType::float32, "reference");
            ops::cast(compute, fsdp.shards(), own);
            compute.synchronize();
            load();
        }
        ops::cast(compute, fsdp.shards(), reference->tensor());
        if (load) ops::cast(compute, own, fsdp.shards());
        compute.synchronize();
    }

    // At most this much may sleep from here on.
    void wake_for(Sleep most) {
        if (level > most) sleep(most);
    }

    const Tensor& reduced_gradients() const {
        require(!fsdp.has_unreduced_gradients(),
                "gradients are not reduced yet: set_requires_gradient_sync(true) before the last accumulate");
        return fsdp.gradients();
    }

    double apply(double lr) {
        const trace::Scope scope("optimizer", "trainer");
        const MemoryPhase phase("optimizer");
        wake_for(Sleep::none);
        const double norm = global_norm(compute, reduced_gradients(), fsdp.communicator());
        optimizer.step(compute, fsdp.state(), fsdp.gradients(), lr, clip_scale(norm, options.clip_grad_norm));
        ops::fill_zero(compute, fsdp.gradients());
        gradients_in_use = false;
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
        const Hold held(*this, false);
        Tensor own = full.rows(entry.first_row, entry.local_rows);
        if (own.device() != options.device) own = own.to(compute, options.device, "load_parameter");
        ops::cast(compute, own, fsdp.layout().local(fsdp.shards(), index));
        compute.synchronize();  // `full` is the caller's
    }

    DeviceMesh mesh;
    model::ModelConfig config;
    PolicyOptions options;
    ShardMesh shard_mesh;
    Stream compute = Stream::make_compute(options.device);
    Decoder decoder;
    FullyShard fsdp;
    AdamW optimizer;
    Stream ring;
    bool sync = true;
    std::optional<FlatState>
        reference;  // flat, like fsdp.state(), in the compute dtype; from when it is asked for
    Sleep level = Sleep::none;
    int holders = 0;  // Residences; of them with the optimizer
    int optimizer_holders = 0;
    bool gradients_in_use = false;  // accumulated and not applied
    std::vector<std::unique_ptr<ReleasedPages>> released_gradients;
    std::vector<std::pair<std::string, DTensor>> parameters;
    std::vector<std::pair<std::string, DTensor>> extra_parameters;
};

Policy::Policy(DeviceMesh mesh, model::ModelConfig config, PolicyOptions options)
    : impl_(std::make_unique<Impl>(std::move(mesh), std::move(config), std::move(options))) {}
Policy::~Policy() = default;

Scores Policy::score(const std::vector<Sample>& samples, const ScoreOptions& options) {
    return impl_->score(samples, options);
}
StepStats Policy::accumulate(const std::vector<Sample>& samples, const LossOptions& loss) {
    return impl_->accumulate(samples, loss);
}
void Policy::set_requires_gradient_sync(bool sync) {
    impl_->sync = sync;
    impl_->fsdp.set_requires_gradient_sync(sync);
}
double Policy::apply(double lr) {
    return impl_->apply(lr);
}
struct Policy::Residence::Held {
    Impl::Hold hold;
};
Policy::Residence::Residence(Policy& policy, bool optimizer)
    : held_(new Held{Impl::Hold(*policy.impl_, optimizer)}) {}
Policy::Residence::~Residence() = default;
void Policy::sleep(Sleep level) {
    impl_->sleep(level);
}
void Policy::wake() {
    impl_->sleep(Sleep::none);
}
void Policy::reset_optimizer() {
    impl_->optimizer.reset(impl_->compute);
}
void Policy::set_reference(const std::function<void()>& load) {
    impl_->set_reference(load);
}
bool Policy::has_reference() const {
    return impl_->reference.has_value();
}
const model::ModelConfig& Policy::config() const {
    return impl_->config;
}
Device Policy::device() const {
    return impl_->options.device;
}
const DeviceMesh& Policy::mesh() const {
    return impl_->mesh;
}
const std::vector<std::pair<std::string, DTensor>>& Policy::parameters() const {
    impl_->check_resident();
    return impl_->parameters;
}
std::vector<std::pair<std::string, DTensor>> Policy::gradients() const {
    return impl_->as_dtensors(impl_->reduced_gradients(), 0, impl_->model_parameters());
}
const std::vector<std::pair<std::string, DTensor>>& Policy::extra_parameters() const {
    impl_->check_resident();
    return impl_->extra_parameters;
}
std::vector<std::pair<std::string, DTensor>> Policy::extra_gradients() const {
    return impl_->as_dtensors(impl_->reduced_gradients(), impl_->model_parameters(),
                              impl_->decoder.parameters().size());
}
std::vector<std::pair<std::string, DTensor>> Policy::reference_parameters() const {
    if (!has_reference()) return {};
    return impl_->as_dtensors(impl_->reference->tensor(), 0, impl_->model_parameters());
}
std::vector<std::pair<std::string, DTensor>> Policy::training_state() const {
    impl_->check_resident();
    AdamW& optimizer = impl_->optimizer;
    require(optimizer.exp_avg().resident(),
            "the moments are in the tier: hold a Policy::Residence with them");
    const std::pair<const char*, const Tensor*> parts[] = {{"weights/", &impl_->fsdp.shards()},
                                                           {"exp_avg/", &optimizer.exp_avg().tensor()},
                                                           {"exp_avg_sq/", &optimizer.exp_avg_sq().tensor()}};
    std::vector<std::pair<std::string, DTensor>> state;
    for (const auto& [prefix, flat] : parts) {
        for (auto& [name, tensor] : impl_->as_dtensors(*flat, 0, impl_->decoder.parameters().size()))
            state.emplace_back(prefix + name, std::move(tensor));
    }
    for (auto& [name, tensor] : reference_parameters())
        state.emplace_back("reference/" + name, std::move(tensor));
    return state;
}
std::int64_t Policy::optimizer_steps() const {
    return impl_->optimizer.steps();
}
void Policy::set_optimizer_steps(std::int64_t steps) {
    impl_->optimizer.set_steps(steps);
}
void Policy::load_parameter(const std::string& name, const Tensor& full) {
    impl_->load_parameter(name, full);
}

}  // namespace tandem::trainer
