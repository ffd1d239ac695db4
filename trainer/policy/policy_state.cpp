// The state of a policy: where it is between calls, how it starts, and how others see it.
#include <algorithm>

#include "common/ops/elementwise.h"
#include "common/tensor/host_access.h"
#include "trainer/policy/initial_weights.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

void Policy::place_states() {
    if (options_.device != Device{}) compute_.synchronize();  // nothing still writes what is to be offloaded
    const bool asleep = level_ == Sleep::all;
    place(fsdp_.state(), scopes_ == 0 && (asleep || options_.offload.parameters));
    if (reference_) place(*reference_, scopes_ == 0 && (asleep || options_.offload.parameters));
    for (FlatState* moment : {&optimizer_.exp_avg(), &optimizer_.exp_avg_sq()})
        place(*moment, optimizer_scopes_ == 0 && (level_ != Sleep::none || options_.offload.optimizer));
}

void Policy::sleep(Sleep wanted) {
    if (wanted == level_) return;
    const bool on_gpu = options_.device != Device{};
    require(!on_gpu || wanted <= options_.deepest_sleep,
            "the policy on {} was made to sleep less deeply: PolicyOptions::deepest_sleep",
            to_string(options_.device));
    level_ = wanted;
    place_states();
    if (level_ == Sleep::all) {
        require(!gradients_in_use_, "gradients that were not applied cannot sleep");
        fsdp_.free_buffers();
        fsdp_.release_gradients();
        gradients_released_ = true;
    } else if (std::exchange(gradients_released_, false)) {
        fsdp_.restore_gradients();
    }
    if (level_ == Sleep::none) return;
    trim_cpu_pool();
    if (!on_gpu) return;
    trim_device_pool(options_.device);
    // A full sleep leaves nothing in use of the arenas that peers read.
    if (level_ == Sleep::all) shard_mesh_.world->trim_memory(options_.device);
}

void Policy::count_scope(int change, bool with_optimizer) {
    own_allocations();
    scopes_ += change;
    if (with_optimizer) optimizer_scopes_ += change;
    place_states();
}

void Policy::initialise() {
    const InitialWeights init{options_.seed, options_.init_std, config_.num_hidden_layers};
    const std::vector<Parameter>& all = decoder_.parameters();
    HostAccess access;
    Stream host_work = Stream::make_inline();
    compute_.synchronize();
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].name == kValueHead) continue;  // stays zero
        const DTensor parameter = as_dtensor(fsdp_.shards(), i);
        const Tensor& local = parameter.local();
        const bool here = local.device().type == DeviceType::cpu;
        const Tensor host =
            here ? local : Tensor::empty(local.shape(), local.dtype(), "initial weights", pinned_pool());
        host_work.enqueue(
            [&] { fill_initial_weights(init, all[i], parameter.layout(), host.values<float>()); });
        if (!here) access.write(host, local);
    }
}

DTensor Policy::as_dtensor(const Tensor& flat, std::size_t own) const {
    const Holding& holding = holdings_[own];
    return DTensor::from_local(fsdp_.layout().local(flat, static_cast<int>(own)), holding.mesh,
                               holding.placements, decoder_.parameters()[own].shape);
}

std::optional<std::size_t> Policy::find_own(const std::string& name) const {
    const std::vector<Parameter>& all = decoder_.parameters();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
    if (found == all.end()) return {};
    return static_cast<std::size_t>(found - all.begin());
}

std::vector<std::pair<std::string, DTensor>> Policy::as_dtensors(const Tensor& flat, Which which) const {
    std::vector<std::pair<std::string, DTensor>> result;
    std::size_t own = 0;  // of this rank's, which come in the same order
    for (const model::ParameterSpec& spec : specs_) {
        const bool here = own < decoder_.parameters().size() && decoder_.parameters()[own].name == spec.name;
        const std::size_t at = here ? own++ : own;
        if (which != Which::both && (which == Which::extra) != (spec.name == kValueHead)) continue;
        result.emplace_back(spec.name,
                            here ? as_dtensor(flat, at) : DTensor::elsewhere(spec.shape, flat.dtype()));
    }
    return result;
}

void Policy::set_reference(const std::function<void()>& load) {
    own_allocations();
    if (!reference_) {
        reference_.emplace(compute_, fsdp_.layout().numel(), options_.compute_dtype, "reference",
                           fsdp_.memory(), pages_of(parameters_may_leave()));
    }
    const OnloadScope onloaded(*this, false);
    Tensor own;
    if (load) {
        own = Tensor::empty(compute_, {fsdp_.layout().numel()}, DType::float32, "reference");
        ops::cast(compute_, fsdp_.shards(), own);
        compute_.synchronize();
        load();
    }
    ops::cast(compute_, fsdp_.shards(), reference_->tensor());
    if (load) ops::cast(compute_, own, fsdp_.shards());
    compute_.synchronize();
    if (load) weights_written();
}

void Policy::load_parameter(const std::string& name, const Tensor& full) {
    const auto spec = std::find_if(specs_.begin(), specs_.end(),
                                   [&](const model::ParameterSpec& one) { return one.name == name; });
    require(spec != specs_.end(), "the model has no parameter {}", name);
    require(full.shape() == spec->shape, "{} has shape {}, not {}", name, to_string(spec->shape),
            to_string(full.shape()));
    const auto here = find_own(name);
    if (!here) return;  // another stage's
    const Holding& holding = holdings_[*here];
    const OnloadScope onloaded(*this, false);
    Tensor own = DTensor::distribute(full, holding.mesh, holding.placements).local();
    if (own.device() != options_.device) own = own.to(compute_, options_.device, "load_parameter");
    ops::cast(compute_, own, fsdp_.layout().local(fsdp_.shards(), static_cast<int>(*here)));
    compute_.synchronize();  // `full` is the caller's
    weights_written();
}

void Policy::weights_written() {
    fsdp_.state_written();
    non_finite_before_.reset();
}

std::vector<std::pair<std::string, DTensor>> Policy::training_state() const {
    check_resident();
    require(optimizer_.exp_avg().resident(),
            "the moments are offloaded: they need a Policy::OnloadScope with the optimizer");
    const std::pair<const char*, const Tensor*> parts[] = {
        {"weights/", &fsdp_.shards()},
        {"exp_avg/", &optimizer_.exp_avg().tensor()},
        {"exp_avg_sq/", &optimizer_.exp_avg_sq().tensor()}};
    std::vector<std::pair<std::string, DTensor>> state;
    for (const auto& [prefix, flat] : parts) {
        for (auto& [name, tensor] : as_dtensors(*flat, Which::both))
            state.emplace_back(prefix + name, std::move(tensor));
    }
    for (auto& [name, tensor] : reference_parameters())
        state.emplace_back("reference/" + name, std::move(tensor));
    return state;
}

}  // namespace tandem::trainer
