// The policy under training: one rank's share of the model, its optimizer, and the few verbs that a training
// loop needs. Everything is collective over the mesh: every rank makes the same calls with the same
// arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/dtensor/dtensor.h"
#include "common/mesh/device_mesh.h"
#include "common/model/model_config.h"
#include "trainer/fsdp/reshard_after_forward.h"
#include "trainer/nn/checkpointing.h"
#include "trainer/policy/learner.h"

namespace tandem::trainer {

struct PolicyOptions {
    Device device;  // where parameters lie and passes run
    DType compute_dtype = DType::float32;
    // Neighbouring mesh axes that parameters are sharded over; gradients are averaged over the others too.
    // Empty: all axes, or all but cp when shard_over_cp is false.
    std::vector<std::string> shard_axes;
    bool shard_over_cp = true;
    ReshardAfterForward reshard_after_forward = true;  // or a number of ranks, see there
    // false: unsharded gradients are kept until the last micro-batch of accumulate(), and reduced once.
    bool reduce_every_micro_batch = true;
    std::int64_t max_tokens_per_rank = 4096;  // capacity of a pack is this × cp
    std::int64_t micro_batch = 0;             // samples of a micro-batch; 0: as many as the capacity holds
    // Packed all-gather-KV attention for batches of short sequences, zigzag ring for long ones; automatic:
    // ring when the pack holds one sequence. Without a cp axis there is nothing to choose.
    enum class ContextMode : std::uint8_t { automatic, packed, zigzag } context = ContextMode::automatic;
    float clip_grad_norm = 1.0f;  // 0: off
    float beta1 = 0.9f;
    float beta2 = 0.95f;
    float eps = 1e-8f;
    float weight_decay = 0.0f;
    float init_std = 0.02f;  // normal init; o_proj and down_proj get init_std / sqrt(2 * layers)
    std::uint64_t seed = 0;  // of the init; the same weights whatever the mesh
    std::int64_t logits_chunk_rows = 1024;
    Checkpointing checkpointing = Checkpointing::none;
    struct Offload {
        bool optimizer = false;
        bool parameters = false;  // with the reference model
        std::string directory = ".";
    } offload;  // state that is in the tier below memory while it is not used
    // The deepest sleep that the policy may be asked for: a GPU's memory must be allocated so that its pages
    // can go. The CPU's always can.
    enum class Sleep : std::uint8_t { none, optimizer, all } deepest_sleep = Sleep::none;
    bool value_head = false;     // value_head.weight [1, hidden], zero at first, over the last hidden state
    double value_lr_factor = 1;  // its learning rate over that of the others
};

class Policy final : public Learner {
    struct Impl;

  public:
    // mesh has the axes (dp, cp) or, for hybrid sharding, (dp_replicate, dp_shard, cp).
    Policy(DeviceMesh mesh, model::ModelConfig config, PolicyOptions options);
    ~Policy() override;

    Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) override;
    Scores::PerToken logprobs(const std::vector<Sample>& samples) { return score(samples, {}).logprobs; }
    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) override;
    // false: accumulate() keeps each rank's unsharded fp32 gradients; the next call under true reduces them
    // with its own. Until then there are no gradients() to read or apply().
    void set_requires_gradient_sync(bool sync);
    // While one lives, state that is offloaded or asleep is in memory and may be read and written through
    // parameters(), extra_parameters() and reference_parameters(), with `optimizer` also the moments. Its
    // constructor waits for running work.
    class OnloadScope {
      public:
        explicit OnloadScope(Policy& policy, bool optimizer = false);
        ~OnloadScope();
        OnloadScope(const OnloadScope&) = delete;
        OnloadScope& operator=(const OnloadScope&) = delete;

      private:
        friend struct Policy::Impl;
        OnloadScope(Impl& impl, bool optimizer);

        Impl& impl_;
        bool optimizer_;
    };
    // Moves the optimizer's state, or all that a step needs, to the tier and its memory to the system, until
    // wake() or the next accumulate(), score() or apply() that needs it. Between calls only. On a GPU at most
    // options.deepest_sleep: throws InvalidArgument.
    using Sleep = PolicyOptions::Sleep;
    void sleep(Sleep level);
    void wake();

    double apply(double lr) override;
    void reset_optimizer() override;

    // The reference model is a frozen copy of the policy's weights as they are now, sharded like them and in
    // the compute dtype (tag "reference"): its forward has the same bits as the policy's had. A second call
    // refreshes it. With `load`: the weights that this leaves in the policy (by load_parameter); the policy
    // gets its own back.
    void set_reference(const std::function<void()>& load);
    void set_reference() override { set_reference({}); }
    bool has_reference() const override;

    const model::ModelConfig& config() const;
    const DeviceMesh& mesh() const;
    Device device() const;
    // Parameters (fp32) and gradients as sharded DTensors in the order of model::parameter_specs. They alias
    // the live shards, which must be in memory whenever they are used: see OnloadScope.
    const std::vector<std::pair<std::string, DTensor>>& parameters() const;
    std::vector<std::pair<std::string, DTensor>> gradients() const;
    // Parameters that are trained beside the model: the value head. Training checkpoints have them, the
    // model's do not.
    const std::vector<std::pair<std::string, DTensor>>& extra_parameters() const;
    std::vector<std::pair<std::string, DTensor>> extra_gradients() const;
    // The reference's copies of parameters(), in the compute dtype; none before set_reference().
    std::vector<std::pair<std::string, DTensor>> reference_parameters() const;
    // The state that a training checkpoint keeps, by name and aliasing the live tensors: weights/NAME,
    // exp_avg/NAME and exp_avg_sq/NAME of model and extra parameters, reference/NAME where there is a
    // reference. Overwriting it, with optimizer_steps, makes this policy the one that was saved.
    std::vector<std::pair<std::string, DTensor>> training_state() const;
    std::int64_t optimizer_steps() const;
    void set_optimizer_steps(std::int64_t steps);
    // Overwrites a parameter from its full value in host memory, the same on every rank.
    void load_parameter(const std::string& name, const Tensor& full);

  private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::trainer
