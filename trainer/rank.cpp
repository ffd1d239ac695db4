#include "trainer/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "common/ops/matmul.h"
#include "common/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/training.h"
#include "trainer/flops.h"
#include "trainer/loss_config.h"
#include "trainer/make_task.h"
#include "trainer/report/recorder.h"
#include "trainer/report/trace_files.h"
#include "trainer/resume.h"
#include "trainer/summary.h"

namespace tandem::trainer {
namespace {

class PolicyLearner final : public Learner {
  public:
    explicit PolicyLearner(Policy& policy) : policy_(policy) {}
    Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) override {
        return policy_.score(samples, options);
    }
    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) override {
        return policy_.accumulate(samples, loss);
    }
    double apply(double lr) override { return policy_.apply(lr); }
    void reset_optimizer() override { policy_.reset_optimizer(); }
    void set_reference() override { policy_.set_reference(); }
    bool has_reference() const override { return policy_.has_reference(); }

  private:
    Policy& policy_;
};

PolicyOptions policy_options(const RunConfig& c) {
    PolicyOptions o;
    o.compute_dtype = dtype_from_name(c.train.compute_dtype);
    o.shard_axes = c.shard_axes();
    o.reshard_after_forward = c.train.reshard_after_forward;
    if (c.train.reshard_ranks > 0)
        o.reshard_after_forward = ReshardAfterForward(static_cast<int>(c.train.reshard_ranks));
    o.reduce_every_micro_batch = c.train.reduce_every_micro_batch;
    o.max_tokens_per_rank = c.train.max_tokens_per_rank;
    o.micro_batch = c.train.micro_batch;
    using Mode = PolicyOptions::ContextMode;
    o.context = c.train.context_mode == "packed"   ? Mode::packed
                : c.train.context_mode == "zigzag" ? Mode::zigzag
                                                   : Mode::automatic;
    o.clip_grad_norm = static_cast<float>(c.train.clip);
    o.beta1 = static_cast<float>(c.train.beta1);
    o.beta2 = static_cast<float>(c.train.beta2);
    o.eps = static_cast<float>(c.train.eps);
    o.weight_decay = static_cast<float>(c.train.weight_decay);
    o.init_std = static_cast<float>(c.model.init_std);
    o.seed = static_cast<std::uint64_t>(c.run.seed);
    o.logits_chunk_rows = c.train.logits_chunk_rows;
    o.checkpointing = c.memory.activation_checkpointing == "full"        ? Checkpointing::full
                      : c.memory.activation_checkpointing == "selective" ? Checkpointing::selective
                                                                         : Checkpointing::none;
    o.value_head = needs_value_head(c);
    return o;
}

SaveOptions save_options(const RunConfig& c) {
    return {dtype_from_name(c.checkpoint.dtype),
            static_cast<std::size_t>(c.checkpoint.shard_gib * static_cast<double>(std::size_t{1} << 30)),
            c.model.path};
}

Manifest manifest_of(const RunConfig& c, const config::Schema& schema, const Policy& policy,
                     const LoopState& state) {
    Manifest manifest;
    manifest.step = state.total_steps();
    manifest.optimizer_steps = policy.optimizer_steps();
    manifest.config = config_json(schema);
    manifest.model = nlohmann::ordered_json::parse(model::to_json(policy.config()));
    manifest.loop = to_json(state);
    manifest.mesh = {{"dp", c.mesh.dp},
                     {"dp_replicate", c.mesh.dp_replicate},
                     {"cp", c.mesh.cp},
                     {"shard_axes", c.mesh.shard_axes}};
    return manifest;
}

// The policy as it was saved; where the loop then goes on.
LoopState restore(Policy& policy, const std::string& directory) {
    const Manifest manifest = read_manifest(directory);
    const auto reference = manifest.tensors.lower_bound("reference/");
    if (reference != manifest.tensors.end() && reference->first.starts_with("reference/"))
        policy.set_reference();
    read_training_checkpoint(directory, policy.training_state());
    policy.set_optimizer_steps(manifest.optimizer_steps);
    return loop_state_from_json(manifest.loop);
}

std::chrono::nanoseconds seconds(double value) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(value * 1e9));
}

// Ranks that fight for cores are slow: a core each, or several where there are more cores than ranks.
int threads_per_rank(int ranks) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
}

void write_summary(const std::string& directory, const nlohmann::ordered_json& summary) {
    std::ofstream out(directory + "/summary.json");
    out << summary.dump(2) << "\n";
    if (!out.flush()) throw SystemError("write " + directory + "/summary.json", errno);
}

}  // namespace

void run_rank(const RunConfig& c, const config::Schema& schema,
              const std::shared_ptr<comm::Communicator>& world, const std::string& run_directory,
              const std::string& engine_url, const ConnectSync& connect_sync) {
    const bool first = world->rank() == 0;
    trace::enable(fmt::format("rank {}", world->rank()), world->rank());
    ops::set_compute_threads(threads_per_rank(world->size()));
    world->set_timeout(std::chrono::duration_cast<std::chrono::milliseconds>(seconds(c.run.deadline_s)));

    const auto mesh = DeviceMesh::create(
        world,
        {static_cast<int>(c.mesh.dp_replicate), static_cast<int>(c.dp_shard()), static_cast<int>(c.mesh.cp)},
        {"dp_replicate", "dp_shard", "cp"});
    const auto task = make_task(c, schema);
    Policy policy(mesh, model_config(c, schema, *task), policy_options(c));
    if (!c.model.path.empty() && c.run.resume.empty()) load_checkpoint(policy, c.model.path);
    const LoopState start = c.run.resume.empty() ? LoopState() : restore(policy, c.run.resume);
    if (!c.loss.reference.empty()) policy.set_reference([&] { load_checkpoint(policy, c.loss.reference); });
    PolicyLearner learner(policy);

    const SyncPort sync = connect_sync(world, policy, engine_url, c);
    Rollouts rollouts(*world, first ? std::make_unique<RolloutClient>(
                                          engine_url, seconds(c.engine.deadline_s), c.engine.batch)
                                    : nullptr);
    const std::string metrics = run_directory + "/metrics.jsonl";
    Recorder recorder = first ? Recorder(metrics, !c.run.resume.empty()) : Recorder();

    const auto checkpoint = [&](const LoopState& state) {
        write_training_checkpoint(policy.training_state(), *world,
                                  {run_directory + "/checkpoints",
                                   {metrics, run_directory + "/samples.jsonl"},
                                   c.checkpoint.keep,
                                   manifest_of(c, schema, policy, state)});
    };
    const double product_rate = measure_product_rate(*world, dtype_from_name(c.train.compute_dtype));
    const LoopResult result = run_loop(c,
                                       {*world, *task, learner, rollouts, sync.publish, sync.weights_match,
                                        recorder, &policy.config(), product_rate, checkpoint},
                                       start);
    save_checkpoint(policy, *world, run_directory + "/checkpoint", save_options(c));
    if (first) write_summary(run_directory, summary_of(c, result));
    write_trace_part(run_directory, fmt::format("rank{}", world->rank()));
    world->barrier();  // everything is in the folder
    if (!result.weights_match) throw Error("the engine's weights are not the trainer's; see the log above");
}

}  // namespace tandem::trainer
