#include "trainer/run/rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "common/ops/matmul.h"
#include "common/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/training.h"
#include "trainer/config/policy_options.h"
#include "trainer/data/make_task.h"
#include "trainer/loop/flops.h"
#include "trainer/loss/config.h"
#include "trainer/memory/measured.h"
#include "trainer/memory/report.h"
#include "trainer/report/recorder.h"
#include "trainer/report/trace_files.h"
#include "trainer/rollout/engine_memory.h"
#include "trainer/run/device_choice.h"
#include "trainer/run/resume.h"
#include "trainer/run/summary.h"

namespace tandem::trainer {
namespace {

class PolicyLearner final : public Learner {
  public:
    PolicyLearner(Policy& policy, EngineMemory& engine_memory)
        : policy_(policy), engine_memory_(engine_memory) {}
    Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) override {
        engine_memory_.before_training();
        return policy_.score(samples, options);
    }
    StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) override {
        engine_memory_.before_training();
        return policy_.accumulate(samples, loss);
    }
    double apply(double lr) override { return policy_.apply(lr); }
    void reset_optimizer() override { policy_.reset_optimizer(); }
    void set_reference() override { policy_.set_reference(); }
    bool has_reference() const override { return policy_.has_reference(); }

  private:
    Policy& policy_;
    EngineMemory& engine_memory_;
};

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

    const int local_rank = comm::launched_as_rank() ? comm::rank_environment().local_rank : 0;
    const Device device = device_of_rank(c, world->rank(), local_rank);
    const auto mesh = DeviceMesh::create(
        comm::for_device(world, device),
        {static_cast<int>(c.mesh.dp_replicate), static_cast<int>(c.dp_shard()), static_cast<int>(c.mesh.cp)},
        {"dp_replicate", "dp_shard", "cp"});
    const auto task = make_task(c, schema);
    PolicyOptions options = policy_options(c);
    options.device = device;
    if (options.offload.directory.empty()) options.offload.directory = run_directory;
    Policy policy(mesh, model_config(c, schema, *task), options);
    SyncPort sync;
    LoopState start;
    {
        const Policy::Residence there(policy, /*optimizer=*/!c.run.resume.empty());
        if (!c.model.path.empty() && c.run.resume.empty()) load_checkpoint(policy, c.model.path);
        if (!c.run.resume.empty()) start = restore(policy, c.run.resume);
        if (!c.loss.reference.empty() && !policy.has_reference())  // a checkpoint brings its own
            policy.set_reference([&] { load_checkpoint(policy, c.loss.reference); });
        sync = connect_sync(world, policy, engine_url, c);
    }
    EngineMemory engine_memory =
        first ? EngineMemory(engine_url, c.memory.engine_sleep, seconds(c.engine.deadline_s))
              : EngineMemory();
    PolicyLearner learner(policy, engine_memory);
    Rollouts rollouts(*world, first ? std::make_unique<RolloutClient>(
                                          engine_url, seconds(c.engine.deadline_s), c.engine.batch)
                                    : nullptr);
    const std::string metrics = run_directory + "/metrics.jsonl";
    Recorder recorder = first ? Recorder(metrics, !c.run.resume.empty()) : Recorder();

    const auto checkpoint = [&](const LoopState& state) {
        const MemoryPhase phase("checkpoint");
        const Policy::Residence there(policy, /*optimizer=*/true);
        write_training_checkpoint(policy.training_state(), *world,
                                  {run_directory + "/checkpoints",
                                   {metrics, run_directory + "/samples.jsonl"},
                                   c.checkpoint.keep,
                                   manifest_of(c, schema, policy, state)});
    };
    const auto publish = [&](std::int64_t version) {
        const MemoryPhase phase("sync");
        engine_memory.before_sync();
        SyncTimes times;
        {
            const Policy::Residence there(policy);
            times = sync.publish(version);
        }
        policy.sleep(options.deepest_sleep);  // a step wakes what it needs
        engine_memory.after_sync();
        return times;
    };
    const auto weights_match = [&] {
        const Policy::Residence there(policy);
        return sync.weights_match();
    };
    const double product_rate =
        measure_product_rate(*world, options.device, dtype_from_name(c.train.compute_dtype));
    const auto loop = [&] {
        try {
            return run_loop(c,
                            {*world, *task, learner, rollouts, publish, weights_match, recorder,
                             &policy.config(), product_rate, checkpoint},
                            start);
        } catch (const std::exception& error) {
            // Now: letting go of a GPU's memory may wait for an engine that hangs.
            world->abort(error.what());
            throw;
        }
    };
    const LoopResult result = loop();
    {
        const MemoryPhase phase("checkpoint");
        const Policy::Residence there(policy);
        save_checkpoint(policy, *world, run_directory + "/checkpoint", save_options(c));
    }
    const auto memory = memory::measured(*world, memory::report_of(c, schema, *task, sync.memory).prediction);
    if (first) {
        nlohmann::ordered_json summary = summary_of(c, result);
        summary["memory"] = memory;
        write_summary(run_directory, summary);
    }
    write_trace_part(run_directory, fmt::format("rank{}", world->rank()));
    world->barrier();  // everything is in the folder
    if (!result.weights_match) throw Error("the engine's weights are not the trainer's; see the log above");
}

}  // namespace tandem::trainer
