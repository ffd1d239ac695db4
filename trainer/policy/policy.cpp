// Ties the training core together: the model (nn), its shards (fsdp) and the optimizer. The passes are in
// policy_passes.cpp, the places of its state in policy_state.cpp.
#include "trainer/policy/policy.h"

#include <algorithm>
#include <exception>

#include "common/log.h"
#include "trainer/tensor_parallel/gradient_sums.h"

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
    std::erase(axes, "tp");
    std::erase(axes, "pp");
    if (!options.shard_over_cp) std::erase(axes, "cp");
    return axes;
}

std::optional<pipeline::Plan> plan_of(const DeviceMesh& mesh, const model::ModelConfig& config,
                                      const PolicyOptions& options) {
    if (!mesh.has_axis("pp") || mesh.size("pp") == 1) return {};
    return pipeline::Plan(options.pipeline, mesh.size("pp"), static_cast<int>(config.num_hidden_layers));
}

// A tied model's embedding and head are of two ranks of the pipeline, of which this is one.
std::optional<ShardMesh::Shared> shared_table(const ShardMesh& mesh,
                                              const std::optional<pipeline::Plan>& plan,
                                              const model::ModelConfig& config,
                                              const std::vector<model::ParameterSpec>& specs) {
    if (!plan || !config.tie_word_embeddings) return {};
    const auto [first, last] = std::minmax(plan->rank_of_stage().front(), plan->rank_of_stage().back());
    const int here = mesh.pipeline->rank();
    if (first == last || (here != first && here != last)) return {};
    enforce(first == 0,
            "embedding and head of this model are one table: one of their stages must be on rank 0");
    const auto table = std::find_if(specs.begin(), specs.end(), [](const model::ParameterSpec& spec) {
        return spec.role == model::Role::embedding;
    });
    return mesh.shared_by_first_and(last, *table);
}

std::vector<Holding> holdings_of(const ShardMesh& mesh, const std::vector<Parameter>& parameters,
                                 const std::optional<ShardMesh::Shared>& table) {
    std::vector<Holding> holdings;
    for (const Parameter& parameter : parameters) {
        const bool shared = table && parameter.role == model::Role::embedding;
        holdings.push_back(shared ? table->holding : mesh.holding_of(parameter));
    }
    return holdings;
}

std::shared_ptr<comm::Communicator> copies_of(const ShardMesh& mesh, const model::ModelConfig& config) {
    const auto heads = static_cast<int>(config.num_key_value_heads);
    return mesh.tensor->size() > heads ? mesh.copies_of(heads) : nullptr;
}

// Hidden states of fewer bytes are worth no hand-over to another thread.
constexpr std::int64_t kTransferOverlapBytes = 64 << 10;

bool transfers_overlap(const PolicyOptions& options, const model::ModelConfig& config) {
    return options.device.type != DeviceType::cpu ||
           options.max_tokens_per_rank * config.hidden_size *
                   static_cast<std::int64_t>(dtype_size(options.compute_dtype)) >=
               kTransferOverlapBytes;
}

}  // namespace

Policy::Policy(DeviceMesh mesh, model::ModelConfig config, PolicyOptions options)
    : mesh_(std::move(mesh)),
      config_(checked(std::move(config))),
      options_(std::move(options)),
      shard_mesh_(mesh_, shard_axes_of(options_, mesh_)),
      tensor_(*shard_mesh_.tensor, options_.sequence_parallel),
      plan_(plan_of(mesh_, config_, options_)),
      decoder_(
          config_,
          {options_.logits_chunk_rows, options_.checkpointing, options_.value_head, options_.loss_parallel,
           plan_ ? plan_->parts_of(shard_mesh_.pipeline->rank()) : std::vector<DecoderPart>()},
          tensor_),
      specs_(decoder_specs(config_, options_.value_head)),
      copies_(copies_of(shard_mesh_, config_)),
      table_(shared_table(shard_mesh_, plan_, config_, specs_)),
      holdings_(holdings_of(shard_mesh_, decoder_.parameters(), table_)),
      fsdp_(decoder_.parameters(), decoder_.groups(), *shard_mesh_.shards, *shard_mesh_.replicas,
            *shard_mesh_.world, compute_,
            {options_.compute_dtype, options_.reshard_after_forward, options_.offload.parameters,
             pages_of(parameters_may_leave()), pages_of(options_.deepest_sleep == Sleep::all)},
            term_sums()),
      optimizer_(compute_, fsdp_.layout().numel(), options_.beta1, options_.beta2, options_.eps,
                 options_.weight_decay, options_.offload.optimizer ? options_.offload.directory : "",
                 pages_of(options_.deepest_sleep != Sleep::none)),
      ring_(cp() > 1 && (options_.max_tokens_per_rank >= kRingOverlapTokens ||
                         options_.device.type != DeviceType::cpu)
                ? Stream::make(options_.device, "ring")
                : Stream::make_inline()) {
    if (const auto head = find_own(kValueHead))  // the last of the flat shard
        optimizer_.set_tail(fsdp_.layout().entry(static_cast<int>(*head)).offset, options_.value_lr_factor);
    if (plan_)
        pipeline_.emplace(*shard_mesh_.pipeline, plan_->rank_of_stage(), compute_,
                          transfers_overlap(options_, config_));
    require(options_.max_tokens_per_rank > 0, "max_tokens_per_rank is {}", options_.max_tokens_per_rank);
    initialise();
    parameters_ = as_dtensors(fsdp_.shards(), Which::model);
    extra_parameters_ = as_dtensors(fsdp_.shards(), Which::extra);
    place_states();
}

std::vector<TermSum> Policy::term_sums() const {
    TermSum tensor{{}, *shard_mesh_.tensor};
    TermSum copies{{}, copies_ ? *copies_ : *shard_mesh_.tensor};
    TermSum table{{}, table_ ? *table_->ranks : *shard_mesh_.pipeline};
    const std::vector<Parameter>& all = decoder_.parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto member = static_cast<int>(i);
        const GradientSum sum = gradient_sum(all[i], tensor_.size(), options_.sequence_parallel);
        if (sum == GradientSum::tensor) tensor.members.push_back(member);
        if (sum == GradientSum::copies) copies.members.push_back(member);
        if (table_ && all[i].role == model::Role::embedding) table.members.push_back(member);
    }
    return {tensor, copies, table};
}

Policy::OnloadScope::OnloadScope(Policy& policy, bool optimizer) : policy_(policy), optimizer_(optimizer) {
    policy_.count_scope(+1, optimizer_);
    policy_.compute_.synchronize();
}

Policy::OnloadScope::~OnloadScope() {
    try {
        policy_.count_scope(-1, optimizer_);
    } catch (const std::exception& error) {
        log_error("state stays in memory: {}", error.what());
    }
}

void Policy::set_requires_gradient_sync(bool sync) {
    sync_ = sync;
    fsdp_.set_requires_gradient_sync(sync);
}

void Policy::reset_optimizer() {
    optimizer_.reset(compute_);
}

const std::vector<std::pair<std::string, DTensor>>& Policy::parameters() const {
    check_resident();
    return parameters_;
}

const std::vector<std::pair<std::string, DTensor>>& Policy::extra_parameters() const {
    check_resident();
    return extra_parameters_;
}

std::vector<std::pair<std::string, DTensor>> Policy::gradients() const {
    return as_dtensors(reduced_gradients(), Which::both);
}

std::vector<std::pair<std::string, DTensor>> Policy::reference_parameters() const {
    if (!has_reference()) return {};
    return as_dtensors(reference_->tensor(), Which::model);
}

}  // namespace tandem::trainer
