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
#include "trainer/flops.h"
#include "trainer/loss_config.h"
#include "trainer/make_task.h"
#include "trainer/report/recorder.h"
#include "trainer/report/trace_files.h"
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
    if (!c.model.path.empty()) load_checkpoint(policy, c.model.path);
    if (!c.loss.reference.empty()) policy.set_reference([&] { load_checkpoint(policy, c.loss.reference); });
    PolicyLearner learner(policy);

    const SyncPort sync = connect_sync(world, policy, engine_url, c);
    Rollouts rollouts(*world, first ? std::make_unique<RolloutClient>(
                                          engine_url, seconds(c.engine.deadline_s), c.engine.batch)
                                    : nullptr);
    Recorder recorder = first ? Recorder(run_directory + "/metrics.jsonl") : Recorder();

    const LoopResult result =
        run_loop(c, {*world, *task, learner, rollouts, sync.publish, sync.weights_match, recorder,
                     &policy.config(), measure_product_rate(*world, dtype_from_name(c.train.compute_dtype))});
    save_checkpoint(policy, run_directory + "/checkpoint");
    if (first) write_summary(run_directory, summary_of(c, result));
    write_trace_part(run_directory, fmt::format("rank{}", world->rank()));
    world->barrier();  // everything is in the folder
    if (!result.weights_match) throw Error("the engine's weights are not the trainer's; see the log above");
}

}  // namespace tandem::trainer
