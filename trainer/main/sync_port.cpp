#include "trainer/main/sync_port.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "common/device/devices.h"
#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/connect.h"
#include "sync/cost/speed_of_light.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"
#include "sync/session/setup.h"
#include "trainer/config/engine_url.h"
#include "trainer/main/engine_check.h"
#include "trainer/main/sync_checks.h"
#include "trainer/main/sync_memory.h"
#include "trainer/main/weight_source.h"

namespace tandem::trainer {
namespace {

// The fastest of five copies of as many bytes as a sync moves. Collective.
double speed_of_light_ms(comm::Communicator& world, std::size_t bytes, Device device) {
    const bool on_gpu = device.type == DeviceType::cuda;
    sync::SpeedOfLight light(world, bytes, device,
                             speed_of_light_bytes(on_gpu, on_gpu ? free_bytes(device) : 0));
    double best = light.measure_ms();
    for (int i = 0; i < 4; ++i) best = std::min(best, light.measure_ms());
    return best;
}

sync::SessionOptions session_options(const RunConfig& config) {
    sync::SessionOptions options;
    options.mode = sync_mode(config);
    options.bucket_bytes = static_cast<std::size_t>(config.sync.bucket_mib) << 20;
    options.depth = static_cast<int>(config.sync.depth);
    return options;
}

std::unique_ptr<engine::Engine> connect_engine(const std::string& url, const Policy& policy,
                                               const RunConfig& config, Deadline deadline) {
    engine::ConnectOptions connect;
    connect.rollback = true;  // a run counts its versions from the start, or from where it was resumed
    const std::chrono::milliseconds patience(static_cast<std::int64_t>(config.sync.deadline_s * 1e3));
    connect.lease = std::max(connect.lease, 2 * patience);
    if (config.sync.transport != "nccl") return engine::connect(url, deadline, connect);
    engine::NcclOptions options{.device = policy.device()};
    log_info("weights go from {} to the engine over NCCL", to_string(policy.device()));
    if (config.sync.nccl_form != "auto") {
        options.form = config.sync.nccl_form == "send" ? engine::NcclForm::send : engine::NcclForm::broadcast;
    }
    connect.nccl = options;
    return engine::connect(url, deadline, connect);
}

class SessionPort final : public SyncPort {
  public:
    // On rank 0 with the engine. mirrored: it cannot reach the GPU that the policy is on. third_party: see
    // engine_url.h.
    SessionPort(std::shared_ptr<comm::Communicator> world, const Policy& policy,
                std::unique_ptr<engine::Engine> engine, bool mirrored, bool third_party,
                const sync::SessionOptions& options, const RunConfig& config)
        : world_(std::move(world)),
          of_others_(third_party),
          device_(mirrored ? Device{} : policy.device()),
          memory_(memory_of_sync(config, policy.config(), world_->rank() == 0)),
          source_(policy, mirrored ? &world_->memory() : nullptr),
          session_(world_, source_, std::move(engine), options),
          speed_of_light_ms_(speed_of_light_ms(*world_, session_.bytes(), device_)) {}

    SyncTimes publish(std::int64_t version) override {
        const sync::SyncReport report = session_.push(version);
        const sync::PhaseTimes& t = report.phase_ms;
        return {.total = report.total_ms,
                .prepare = t.prepare,
                .pause = t.pause,
                .gather = t.gather,
                .copy = t.copy,
                .load = t.load,
                .resume = t.resume,
                .finish = t.finish,
                .pack = t.pack,
                .speed_of_light = speed_of_light_ms_};
    }

    std::optional<bool> weights_match() override {
        if (of_others_) return std::nullopt;  // its server has no route that tells which bytes it holds
        const sync::WeightsMatch result = session_.weights_match();
        if (!result.match && world_->rank() == 0)
            log_error("engine and trainer differ, first in tensor '{}'", result.first_mismatch);
        return result.match;
    }

    const std::map<std::string, std::int64_t>& memory() const override { return memory_; }

  private:
    const std::shared_ptr<comm::Communicator> world_;
    const bool of_others_;
    const Device device_;  // that the bytes go from
    const std::map<std::string, std::int64_t> memory_;
    PolicySource source_;
    sync::Session session_;
    const double speed_of_light_ms_;  // measured here, before any step
};

}  // namespace

std::map<std::string, std::int64_t> memory_of_sync(const RunConfig& config, const model::ModelConfig& model,
                                                   bool on_rank_0) {
    const bool on_gpu = syncs_from_gpu(config);
    const sync::SessionOptions options =
        sync::choose(session_options(config), on_gpu ? Device{DeviceType::cuda, 0} : Device{});
    const sync::ModeTraits& mode = sync::traits(options.mode);
    return sync_memory(config, model,
                       {.from_gpu = on_gpu,
                        .slots = mode.staged ? options.depth : 0,
                        .bucket_bytes = options.bucket_bytes,
                        .arena_copies = mode.arena_copies,
                        .keeps_base = mode.keeps_base},
                       on_rank_0);
}

std::unique_ptr<SyncPort> connect_sync(std::shared_ptr<comm::Communicator> world, const Policy& policy,
                                       const std::string& engine_url, const RunConfig& config) {
    const std::chrono::milliseconds timeout(static_cast<std::int64_t>(config.sync.deadline_s * 1e3));
    sync::SessionOptions options = session_options(config);
    options.deadlines = {timeout, timeout, timeout, timeout, timeout, timeout, timeout, timeout};

    std::unique_ptr<engine::Engine> engine;
    if (world->rank() == 0) engine = connect_engine(engine_url, policy, config, Deadline::after(timeout));
    if (engine) tell_differences(config, *engine);
    const std::string why = detour(*world, policy.device(), engine.get(), config);
    if (!why.empty() && syncs_from_gpu(config) && config.sync.transport != "auto") {
        throw Error(fmt::format("sync.transport: {} cannot take the weights from {}: {}; use auto",
                                config.sync.transport, to_string(policy.device()), why));
    }
    if (!why.empty() && world->rank() == 0)
        log_info("weights go from {} to the engine through the host: {}", to_string(policy.device()), why);
    return std::make_unique<SessionPort>(std::move(world), policy, std::move(engine), !why.empty(),
                                         is_third_party(engine_url), options, config);
}

}  // namespace tandem::trainer
