// Ties the training core together: the model (nn), its shards (fsdp) and the optimizer. The passes are in
// policy_passes.cpp, the places of its state in policy_state.cpp.
#include "trainer/policy/policy.h"

#include <exception>

#include "common/log.h"
#include "trainer/policy/policy_impl.h"

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

Policy::Impl::Impl(DeviceMesh mesh_in, model::ModelConfig config_in, PolicyOptions options_in)
    : mesh(std::move(mesh_in)),
      config(checked(std::move(config_in))),
      options(std::move(options_in)),
      shard_mesh(mesh, shard_axes_of(options, mesh)),
      decoder(config, {options.logits_chunk_rows, options.checkpointing, options.value_head}),
      fsdp(decoder.parameters(), decoder.groups(), *shard_mesh.shards, *shard_mesh.replicas, compute,
           {options.compute_dtype, options.reshard_after_forward, options.offload.parameters,
            pages_of(parameters_may_leave()), pages_of(options.deepest_sleep == Sleep::all)}),
      optimizer(compute, fsdp.layout().numel(), options.beta1, options.beta2, options.eps,
                options.weight_decay, options.offload.optimizer ? options.offload.directory : "",
                pages_of(options.deepest_sleep != Sleep::none)),
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
    place_states();
}

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
Policy::OnloadScope::OnloadScope(Policy& policy, bool optimizer) : OnloadScope(*policy.impl_, optimizer) {}
Policy::OnloadScope::OnloadScope(Impl& impl, bool optimizer) : impl_(impl), optimizer_(optimizer) {
    impl_.count_scope(+1, optimizer_);
    impl_.compute.synchronize();
}
Policy::OnloadScope::~OnloadScope() {
    try {
        impl_.count_scope(-1, optimizer_);
    } catch (const std::exception& error) {
        log_error("state stays in memory: {}", error.what());
    }
}
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
