// The state of a policy: where it is between calls, how it starts, and how others see it.
#include <algorithm>

#include "common/ops/elementwise.h"
#include "common/tensor/host_access.h"
#include "trainer/policy/initial_weights.h"
#include "trainer/policy/policy_impl.h"

namespace tandem::trainer {

void Policy::Impl::place_states() {
    if (options.device != Device{}) compute.synchronize();  // nothing still writes what is to be offloaded
    const bool asleep = level == Sleep::all;
    place(fsdp.state(), scopes == 0 && (asleep || options.offload.parameters));
    if (reference) place(*reference, scopes == 0 && (asleep || options.offload.parameters));
    for (FlatState* moment : {&optimizer.exp_avg(), &optimizer.exp_avg_sq()})
        place(*moment, optimizer_scopes == 0 && (level != Sleep::none || options.offload.optimizer));
}

void Policy::Impl::sleep(Sleep wanted) {
    if (wanted == level) return;
    const bool on_gpu = options.device != Device{};
    require(!on_gpu || wanted <= options.deepest_sleep,
            "the policy on {} was made to sleep less deeply: PolicyOptions::deepest_sleep",
            to_string(options.device));
    level = wanted;
    place_states();
    if (level == Sleep::all) {
        require(!gradients_in_use, "gradients that were not applied cannot sleep");
        fsdp.free_buffers();
        fsdp.release_gradients();
        gradients_released = true;
    } else if (std::exchange(gradients_released, false)) {
        fsdp.restore_gradients();
    }
    if (level == Sleep::none) return;
    trim_cpu_pool();
    if (!on_gpu) return;
    trim_device_pool(options.device);
    // A full sleep leaves nothing in use of the arenas that peers read.
    if (level == Sleep::all) shard_mesh.world->trim_memory(options.device);
}

void Policy::Impl::count_scope(int change, bool with_optimizer) {
    scopes += change;
    if (with_optimizer) optimizer_scopes += change;
    place_states();
}

void Policy::Impl::initialise() {
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

std::vector<std::pair<std::string, DTensor>> Policy::Impl::as_dtensors(const Tensor& flat, std::size_t first,
                                                                       std::size_t last) const {
    std::vector<std::pair<std::string, DTensor>> result;
    const std::vector<Parameter>& all = decoder.parameters();
    for (std::size_t i = first; i < last; ++i) {
        result.emplace_back(
            all[i].name, DTensor::from_local(fsdp.layout().local(flat, static_cast<int>(i)), shard_mesh.mesh,
                                             shard_mesh.placements, all[i].shape));
    }
    return result;
}

void Policy::Impl::set_reference(const std::function<void()>& load) {
    if (!reference) {
        reference.emplace(compute, fsdp.layout().numel(), options.compute_dtype, "reference", fsdp.memory(),
                          pages_of(parameters_may_leave()));
    }
    const OnloadScope onloaded(*this, false);
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

void Policy::Impl::load_parameter(const std::string& name, const Tensor& full) {
    const std::vector<Parameter>& all = decoder.parameters();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
    require(found != all.end(), "the model has no parameter {}", name);
    require(full.shape() == found->shape, "{} has shape {}, not {}", name, to_string(found->shape),
            to_string(full.shape()));
    const auto index = static_cast<int>(found - all.begin());
    const FlatShards::Entry& entry = fsdp.layout().entry(index);
    const OnloadScope onloaded(*this, false);
    Tensor own = full.rows(entry.first_row, entry.local_rows);
    if (own.device() != options.device) own = own.to(compute, options.device, "load_parameter");
    ops::cast(compute, own, fsdp.layout().local(fsdp.shards(), index));
    compute.synchronize();  // `full` is the caller's
}

std::vector<std::pair<std::string, DTensor>> Policy::training_state() const {
    impl_->check_resident();
    AdamW& optimizer = impl_->optimizer;
    require(optimizer.exp_avg().resident(),
            "the moments are offloaded: they need a Policy::OnloadScope with the optimizer");
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

}  // namespace tandem::trainer
