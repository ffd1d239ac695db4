// The policy under training: one rank's share of the model, its optimizer, and the few verbs that a training
// loop needs. Everything is collective over the mesh: every rank makes the same calls with the same
// arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/device/tier.h"
#include "common/dtensor/dtensor.h"
#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "common/model/model_config.h"
#include "trainer/data/micro_batch.h"
#include "trainer/fsdp/fully_shard.h"
#include "trainer/fsdp/shard_mesh.h"
#include "trainer/nn/decoder.h"
#include "trainer/optim/adamw.h"
#include "trainer/pipeline/plan.h"
#include "trainer/policy/learner.h"
#include "trainer/policy/options.h"
#include "trainer/policy/pipeline_run.h"

namespace tandem::trainer {

class Policy final : public Learner {
  public:
    // mesh has the axes (dp, cp) or, for hybrid sharding, (dp_replicate, dp_shard, cp), for tensor parallelism tp behind them and
    // for pipeline parallelism pp before them. Throws InvalidArgument, on every rank alike, where tp or pp does not fit the
    // model.
    Policy(DeviceMesh mesh, model::ModelConfig config, PolicyOptions options);
    Policy(const Policy&) = delete;
    Policy& operator=(const Policy&) = delete;

    Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) override;
    Scores::PerToken logprobs(const std::vector<Sample>& samples) { return score(samples, {}).logprobs; }
    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) override;
    // false: accumulate() keeps each rank's unsharded fp32 gradients; the next call under true reduces them
    // with its own. Until then there are no gradients() to read or apply().
    void set_requires_gradient_sync(bool sync);
    // While one lives, state that is offloaded or asleep is in memory and may be read and written through
    // parameters(), extra_parameters() and reference_parameters(), with `optimizer` also the moments. Its
    // constructor waits for running work. After writing weights: weights_written().
    class OnloadScope {
      public:
        explicit OnloadScope(Policy& policy, bool optimizer = false);
        ~OnloadScope();
        OnloadScope(const OnloadScope&) = delete;
        OnloadScope& operator=(const OnloadScope&) = delete;

      private:
        Policy& policy_;
        bool optimizer_;
    };
    // Moves the optimizer's state, or all that a step needs, to the tier and its memory to the system, until
    // wake() or the next accumulate(), score() or apply() that needs it. Between calls only, on every rank alike. On a GPU at most
    // options.deepest_sleep: throws InvalidArgument.
    using Sleep = PolicyOptions::Sleep;
    void sleep(Sleep level);
    void wake() { sleep(Sleep::none); }

    double apply(double lr) override;
    void discard_gradients() override;
    std::vector<NonFiniteTensor> non_finite_gradients() override;
    // With the value head. The first call after weights were loaded, or apply(), notes how many there are: no step of
    // apply() may make more.
    std::vector<NonFiniteTensor> non_finite_weights() override;
    // The same of the reference model's weights.
    std::vector<NonFiniteTensor> non_finite_reference();
    void reset_optimizer() override;

    // The reference model is a frozen copy of the policy's weights as they are now, sharded like them and in
    // the compute dtype (tag "reference"): its forward has the same bits as the policy's had. A second call
    // refreshes it. With `load`: the weights that this leaves in the policy (by load_parameter); the policy
    // gets its own back.
    void set_reference(const std::function<void()>& load);
    void set_reference() override { set_reference({}); }
    bool has_reference() const override { return reference_.has_value(); }

    const model::ModelConfig& config() const { return config_; }
    const DeviceMesh& mesh() const { return mesh_; }
    Device device() const { return options_.device; }
    // Parameters (fp32) as sharded DTensors in the order of model::parameter_specs, on every rank; those of other stages are
    // DTensor::elsewhere. They alias the live shards, which must be in memory whenever they are used: see OnloadScope.
    const std::vector<std::pair<std::string, DTensor>>& parameters() const;
    // Parameters that are trained beside the model: the value head. Training checkpoints have them, the
    // model's do not.
    const std::vector<std::pair<std::string, DTensor>>& extra_parameters() const;
    // Of parameters() and then of extra_parameters(); they too alias the live shards.
    std::vector<std::pair<std::string, DTensor>> gradients() const;
    // The reference's copies of parameters(), in the compute dtype; none before set_reference().
    std::vector<std::pair<std::string, DTensor>> reference_parameters() const;
    // The state that a training checkpoint keeps, by name and aliasing the live tensors: weights/NAME,
    // exp_avg/NAME and exp_avg_sq/NAME of model and extra parameters, reference/NAME where there is a
    // reference. Overwriting it, then set_optimizer_steps(), makes this policy the one that was saved.
    std::vector<std::pair<std::string, DTensor>> training_state() const;
    std::int64_t optimizer_steps() const { return optimizer_.steps(); }
    void set_optimizer_steps(std::int64_t steps) {
        optimizer_.set_steps(steps);
        weights_written();
    }
    // Must follow what was written through parameters() or extra_parameters(), before the next pass; on every rank alike. A
    // pass under bfloat16 on the CPU throws InvalidArgument where it was forgotten and a parameter's first element has changed.
    void weights_written();
    // What the ranks of this one's pipeline did in the last accumulate(), in milliseconds from its first action on; none without
    // stages, before, or where they do not share a host and its clock. Collective over those ranks.
    struct PipelineTimes {
        pipeline::Timing measured;
        pipeline::Timing computed;  // with each stage's mean times and free transfers
    };
    std::optional<PipelineTimes> pipeline_times() const;
    // Overwrites a parameter from its full value in host memory, the same on every rank; of another stage's nothing happens.
    void load_parameter(const std::string& name, const Tensor& full);

  private:
    // This rank's part of a micro-batch, ready to run.
    struct Prepared {
        Prepared(Policy& policy, const std::vector<Sample>& samples, const Pack& pack);
        Targets targets() const { return {batch.target_rows, batch.target_tokens}; }

        const Pack& pack;
        MicroBatch batch;
        std::unique_ptr<ContextParallel> context;
        Compute compute;
    };
    std::vector<Pack> own_packs(const std::vector<Sample>& samples, bool training) const;
    // Of a pipeline (policy_pipeline.cpp): forward of every pack, head(micro-batch, stage, hidden) on the last stage; and the
    // schedule's forward and backward, loss(…) giving the gradient of hidden.
    class Running;
    void run_forward(const std::vector<Sample>& samples, const std::vector<Pack>& packs,
                     const std::function<void(const Prepared&, const DecoderStage&, Tensor)>& head);
    void run_schedule(const std::vector<Sample>& samples, const std::vector<Pack>& packs,
                      const std::function<Tensor(const Prepared&, const DecoderStage&, Tensor)>& loss);
    Tensor room_for_hidden(const Prepared& prepared);
    const DecoderStage& stage(int number) const;                            // of this rank's
    const pipeline::ActionList& own_list(bool training, int microbatches);  // of plan_, made once
    const Tensor& reduced_gradients() const;
    bool would_overflow(double lr, float scale, double norm);
    void check_step(std::int64_t non_finite);
    std::int64_t non_finite_before();
    bool anywhere(bool here);
    int cp() const { return shard_mesh_.context->size(); }
    std::vector<TermSum> term_sums() const;
    std::vector<Tensor> gradients_to_count() const;
    // Of a flat shard: what this rank has of all parameters of the model, of those beside it, or both.
    enum class Which : std::uint8_t { model, extra, both };
    std::vector<std::pair<std::string, DTensor>> as_dtensors(const Tensor& flat, Which which) const;
    DTensor as_dtensor(const Tensor& flat, std::size_t own) const;  // of decoder_.parameters()
    std::optional<std::size_t> find_own(const std::string& name) const;
    void initialise();

    // --- where the state is between calls (policy_state.cpp)

    // Moves every state to its place: to the tier what is offloaded or asleep and in no OnloadScope, else to
    // memory.
    void place_states();
    void place(FlatState& state, bool offloaded) {
        offloaded ? state.offload(options_.offload.directory) : state.onload();
    }
    // Counts an OnloadScope that begins (+1) or ends (-1).
    void count_scope(int change, bool with_optimizer);
    // Memory that this thread takes from here on is ordered by this policy's stream: another policy on the device may have
    // computed in between.
    void own_allocations() { compute_.use_for_allocations(); }
    // Wakes whatever sleeps more deeply than `most`.
    void wake_for(Sleep most) {
        if (level_ > most) sleep(most);
    }
    // On a GPU, state that may be asked to leave memory needs pages that go.
    static Pages pages_of(bool may_leave) { return may_leave ? Pages::go : Pages::stay; }
    bool parameters_may_leave() const {
        return options_.offload.parameters || options_.deepest_sleep == Sleep::all;
    }
    void check_resident() const {
        require(fsdp_.state().resident(), "the parameters are offloaded: they need a Policy::OnloadScope");
    }

    DeviceMesh mesh_;
    model::ModelConfig config_;
    PolicyOptions options_;
    ShardMesh shard_mesh_;
    Stream compute_ = Stream::make_compute(options_.device);
    TensorParallel tensor_;
    std::optional<pipeline::Plan> plan_;  // with a pp axis
    Decoder decoder_;
    std::vector<model::ParameterSpec> specs_;  // of the whole model, and beside it
    std::shared_ptr<comm::Communicator>
        copies_;  // of keys and values with fewer heads than ranks of tp; else null
    std::optional<ShardMesh::Shared> table_;  // that this rank's stages share with others
    std::vector<Holding> holdings_;           // [decoder_.parameters()]
    FullyShard fsdp_;
    AdamW optimizer_;
    Stream ring_;
    std::optional<PipelineRun> pipeline_;
    std::map<std::pair<bool, int>, pipeline::ActionList> own_lists_;  // [training, micro-batches]
    std::vector<pipeline::Interval> trained_;                         // by the last accumulate()
    int trained_micro_batches_ = 0;
    bool sync_ = true;
    std::optional<FlatState> reference_;  // laid out like fsdp_.state(), in the compute dtype; once asked for
    Sleep level_ = Sleep::none;
    int scopes_ = 0;                 // OnloadScopes that live
    int optimizer_scopes_ = 0;       // those of them with the optimizer
    bool gradients_in_use_ = false;  // accumulated and not applied
    bool gradients_released_ = false;
    // Elements of this rank's shards that were infinite or NaN when the weights were loaded; absent: not looked yet.
    std::optional<std::int64_t> non_finite_before_;
    std::vector<std::pair<std::string, DTensor>> parameters_;
    std::vector<std::pair<std::string, DTensor>> extra_parameters_;
};

}  // namespace tandem::trainer
