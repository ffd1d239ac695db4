#include "trainer/run/rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/mesh/parallel_dims.h"
#include "common/ops/matmul.h"
#include "common/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/room.h"
#include "trainer/checkpoint/training.h"
#include "trainer/config/engine_url.h"
#include "trainer/config/pipeline.h"
#include "trainer/config/policy_options.h"
#include "trainer/data/make_task.h"
#include "trainer/loop/flops.h"
#include "trainer/loss/config.h"
#include "trainer/memory/report.h"
#include "trainer/report/pipeline_html.h"
#include "trainer/report/recorder.h"
#include "trainer/report/trace_files.h"
#include "trainer/rollout/engine_memory.h"
#include "trainer/run/data_files.h"
#include "trainer/run/device_choice.h"
#include "trainer/run/disk_check.h"
#include "trainer/run/resume.h"
#include "trainer/run/summary.h"

namespace tandem::trainer {
namespace {

Manifest manifest_of(const RunConfig& c, const config::Schema& schema, const Policy& policy,
                     const LoopState& state, const nlohmann::ordered_json& data) {
    Manifest manifest;
    manifest.step = state.total_steps();
    manifest.optimizer_steps = policy.optimizer_steps();
    manifest.config = config_json(schema);
    manifest.model = parse_ordered_json_text(model::to_json(policy.config()));
    manifest.loop = to_json(state);
    manifest.data = data;
    manifest.mesh = {{"dp", c.mesh.dp},
                     {"dp_replicate", c.mesh.dp_replicate},
                     {"cp", c.mesh.cp},
                     {"tp", c.mesh.tp},
                     {"shard_axes", c.mesh.shard_axes}};
    if (c.mesh.pp > 1) manifest.mesh["pp"] = c.mesh.pp;
    return manifest;
}

// Brings the policy to the state of a training checkpoint; returns where the loop goes on.
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

// One core for each rank, or several where there are more cores than ranks: ranks that share a core are slow.
int threads_per_rank(int ranks) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
}

void write_text(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    out << text;
    if (!out.flush()) throw SystemError("write " + file, errno);
}

void write_summary(const std::string& directory, const nlohmann::ordered_json& summary) {
    write_text(directory + "/summary.json", text_of_json(summary, 2) + "\n");
}

class RankRun final : private LoopHost {
  public:
    RankRun(const RunConfig& config, const config::Schema& schema, std::shared_ptr<comm::Communicator> world,
            const std::string& directory, const std::string& engine_url);

    void build();                                   // the task, and the policy on its mesh
    void connect(const ConnectSync& connect_sync);  // the policy's weights; the way to the engine
    void train();                                   // the loop
    void finish();                                  // checkpoint, summary, trace

  private:
    void keep_room();
    RoomWait room_for(const std::string& what, std::uint64_t bytes) const;
    void write_summary_and_trace();
    bool first() const { return world_->rank() == 0; }
    bool resumed() const { return !config_.run.resume.empty(); }
    std::string metrics_file() const { return directory_ + "/metrics.jsonl"; }
    void load_weights();
    void tell_non_finite(const std::string& source, const std::vector<NonFiniteTensor>& found) const;
    void before_training() override;
    SyncTimes publish(std::int64_t version) override;
    std::optional<bool> weights_match() override;
    void write_checkpoint(const LoopState& state) override;

    const RunConfig& config_;
    const config::Schema& schema_;
    const std::shared_ptr<comm::Communicator> world_;
    const std::string& directory_;
    const std::string& engine_url_;

    std::unique_ptr<Task> task_;
    nlohmann::ordered_json data_;  // rank 0's
    SaveOptions saving_;           // of what the run ends with
    PolicyOptions options_;
    std::optional<Policy> policy_;
    std::unique_ptr<SyncPort> sync_;
    LoopState start_;
    Recorder recorder_;
    Reserve room_;           // of the last checkpoint
    Reserve training_room_;  // of the next one to resume from
    EngineMemory engine_memory_;
    LoopResult result_;
};

// --- before the first step

RankRun::RankRun(const RunConfig& config, const config::Schema& schema,
                 std::shared_ptr<comm::Communicator> world, const std::string& directory,
                 const std::string& engine_url)
    : config_(config),
      schema_(schema),
      world_(std::move(world)),
      directory_(directory),
      engine_url_(engine_url) {
    trace::enable(fmt::format("rank {}", world_->rank()), world_->rank());
    ops::set_compute_threads(threads_per_rank(world_->size()));
    world_->set_timeout(
        std::chrono::duration_cast<std::chrono::milliseconds>(seconds(config.run.deadline_s)));
}

void RankRun::build() {
    const int local_rank = comm::launched_as_rank() ? comm::rank_environment().local_rank : 0;
    const Device device = device_of_rank(config_, world_->rank(), local_rank);
    const ParallelDims dims(config_.degrees(), comm::for_device(world_, device));
    task_ = make_task(config_, schema_);
    if (const std::string stops = task_->stop_token_sources(); first() && !stops.empty())
        log_info("stop tokens: {}", stops);
    if (first()) data_ = data_digests(config_);
    saving_ = save_options(config_);
    if (first()) saving_.files = std::make_shared<const CopiedFiles>(read_copied_files(saving_));
    const model::ModelConfig model = model_config(config_, schema_, *task_);
    if (const std::string uneven = first() ? uneven_stages(config_, model) : ""; !uneven.empty())
        log_info("{}", uneven);
    options_ = policy_options(config_);
    options_.device = device;
    if (options_.offload.directory.empty()) options_.offload.directory = directory_;
    policy_.emplace(dims.train_mesh().slice(policy_axes(config_)), model, options_);
}

void RankRun::connect(const ConnectSync& connect_sync) {
    {
        const Policy::OnloadScope onloaded(*policy_, /*optimizer=*/resumed());
        load_weights();
        const MemoryPhase phase("connect");
        sync_ = connect_sync(world_, *policy_, engine_url_, config_);
    }
    if (first())
        engine_memory_ =
            EngineMemory(engine_url_, config_.memory.engine_sleep, seconds(config_.engine.deadline_s));
    keep_room();
}

// Before the first step: what the run will write at its end has its room.
void RankRun::keep_room() {
    if (!first()) return;
    try {
        room_ = Reserve(directory_, checkpoint_bytes(policy_->config(), saving_));
        if (config_.checkpoint.every > 0)
            training_room_ = Reserve(directory_, training_bytes(config_, policy_->config()));
    } catch (const NoRoom& error) {
        schema_.refuse("run.output", error.what());
    }
}

RoomWait RankRun::room_for(const std::string& what, std::uint64_t bytes) const {
    return {
        .what = what, .folder = directory_, .bytes = bytes, .limit_s = config_.checkpoint.wait_for_room_s};
}

void RankRun::load_weights() {
    if (!config_.model.path.empty() && !resumed()) load_checkpoint(*policy_, config_.model.path);
    if (resumed()) start_ = restore(*policy_, config_.run.resume);
    if (!config_.loss.reference.empty() && !policy_->has_reference())  // a checkpoint brings its own
        policy_->set_reference([&] { load_checkpoint(*policy_, config_.loss.reference); });
    tell_non_finite(config_.model.path, policy_->non_finite_weights());
    if (!config_.loss.reference.empty())
        tell_non_finite("loss.reference " + config_.loss.reference, policy_->non_finite_reference());
}

// Rows that nobody filled are common behind a tokenizer's ids: told once, and left as they are.
void RankRun::tell_non_finite(const std::string& source, const std::vector<NonFiniteTensor>& found) const {
    if (found.empty() || !first()) return;
    log_warn(
        "{}: not finite from the start: {}; left as it is. A step whose loss that reaches is not applied "
        "(train.non_finite)",
        source.empty() ? "the model" : source, text_of(found));
}

// --- the loop, and what it asks of its host

void RankRun::train() {
    const RolloutClientOptions asking{seconds(config_.engine.deadline_s), config_.engine.batch,
                                      config_.grpo.temperature};
    Rollouts rollouts(*world_, first() ? make_rollout_client(engine_url_, asking) : nullptr);
    if (first()) recorder_ = Recorder(metrics_file(), resumed());
    const LoopParts parts{.world = *world_,
                          .task = *task_,
                          .learner = *policy_,
                          .rollouts = rollouts,
                          .host = *this,
                          .recorder = recorder_,
                          .model = &policy_->config(),
                          .product_rate = measure_product_rate(*world_, options_.device,
                                                               dtype_from_name(config_.train.compute_dtype))};
    try {
        result_ = run_loop(config_, parts, start_);
    } catch (const std::exception& error) {
        // Now, because freeing a GPU's memory may wait for an engine that hangs.
        world_->abort(error.what());
        throw;
    }
}

// A step needs memory that the engine may hold.
void RankRun::before_training() {
    engine_memory_.sleep();
}

SyncTimes RankRun::publish(std::int64_t version) {
    const MemoryPhase phase("sync");
    engine_memory_.wake_weights();
    SyncTimes times;
    {
        const Policy::OnloadScope onloaded(*policy_);
        times = sync_->publish(version);
    }
    policy_->sleep(options_.deepest_sleep);  // a step wakes what it needs
    engine_memory_.wake_cache();
    return times;
}

std::optional<bool> RankRun::weights_match() {
    const Policy::OnloadScope onloaded(*policy_);
    return sync_->weights_match();
}

void RankRun::write_checkpoint(const LoopState& state) {
    const MemoryPhase phase("checkpoint");
    const Policy::OnloadScope onloaded(*policy_, /*optimizer=*/true);
    const auto tensors = policy_->training_state();
    training_room_.release();
    write_when_there_is_room(
        *world_,
        room_for(fmt::format("checkpoint step-{}", state.total_steps()), training_checkpoint_bytes(tensors)),
        [&] {
            together(*world_, [&] { recorder_.flush(); });
            write_training_checkpoint(tensors, *world_,
                                      {directory_ + "/checkpoints",
                                       {metrics_file(), directory_ + "/samples.jsonl"},
                                       config_.checkpoint.keep,
                                       manifest_of(config_, schema_, *policy_, state, data_)});
        });
    if (!first() || state.step == config_.grpo.steps) return;
    try {
        training_room_ = Reserve(directory_, training_bytes(config_, policy_->config()));
    } catch (const NoRoom& error) {
        log_warn("no room for the next checkpoint is kept: {}", error.what());
    }
}

// --- the end

void RankRun::finish() {
    {
        const MemoryPhase phase("checkpoint");
        const Policy::OnloadScope onloaded(*policy_);
        room_.release();
        write_when_there_is_room(
            *world_, room_for("the checkpoint", checkpoint_bytes(*policy_, saving_)),
            [&] { save_checkpoint(*policy_, *world_, directory_ + "/checkpoint", saving_); });
    }
    write_summary_and_trace();
    if (result_.weights_match == false)
        throw Error("the engine's weights are not the trainer's; see the log above");
}

void RankRun::write_summary_and_trace() {
    std::optional<memory::Prediction> prediction;
    if (first()) prediction = memory::prediction_of(config_, policy_->config(), *task_, sync_->memory());
    const auto memory = memory::measured(*world_, prediction);
    nlohmann::ordered_json summary = summary_of(config_, result_);
    summary["memory"] = memory;
    const auto stages = policy_->pipeline_times();
    nlohmann::ordered_json pipeline;
    if (stages) {
        const bool of_file = !config_.pipeline.csv.empty();
        pipeline =
            pipeline_json(of_file ? config_.pipeline.csv : pipeline::schedule_name(config_.pipeline.schedule),
                          stages->measured, stages->computed);
        summary["pipeline"] = {{"schedule", pipeline["schedule"]},
                               {"makespan_ms", stages->measured.makespan},
                               {"bubble_ms", stages->measured.bubble},
                               {"computed_makespan_ms", stages->computed.makespan},
                               {"computed_bubble_ms", stages->computed.bubble}};
    }
    constexpr std::uint64_t kBytes = std::uint64_t{64} << 10;
    const std::string actions = stages ? text_of_json(pipeline) + "\n" : "";
    write_when_there_is_room(*world_, room_for("summary.json", kBytes + actions.size()), [&] {
        together(*world_, [&] {
            recorder_.flush();
            if (!first()) return;
            write_summary(directory_, summary);
            if (stages) write_text(directory_ + "/" + kPipelineFile, actions);
        });
    });
    write_trace_part(directory_, fmt::format("rank{}", world_->rank()));
    world_->barrier();  // everything is in the folder
}

}  // namespace

void run_rank(const RunConfig& config, const config::Schema& schema,
              const std::shared_ptr<comm::Communicator>& world, const std::string& run_directory,
              const std::string& engine_url, const ConnectSync& connect_sync) {
    RankRun run(config, schema, world, run_directory, engine_url);
    run.build();
    run.connect(connect_sync);
    run.train();
    run.finish();
}

}  // namespace tandem::trainer
