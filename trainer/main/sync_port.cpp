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

}  // namespace

std::map<std::string, std::int64_t> memory_of_sync(const RunConfig& config, const model::ModelConfig& model) {
    const bool on_gpu = syncs_from_gpu(config);
    const sync::SessionOptions options =
        sync::choose(session_options(config), on_gpu ? Device{DeviceType::cuda, 0} : Device{});
    const sync::ModeTraits& mode = sync::traits(options.mode);
    return sync_memory(config, model,
                       {.from_gpu = on_gpu,
                        .slots = mode.staged ? options.depth : 0,
                        .bucket_bytes = options.bucket_bytes,
                        .arena_copies = mode.arena_copies,
                        .keeps_base = mode.keeps_base});
}

SyncPort connect_sync(std::shared_ptr<comm::Communicator> world, const Policy& policy,
                      const std::string& engine_url, const RunConfig& config) {
    const std::chrono::milliseconds timeout(static_cast<std::int64_t>(config.sync.deadline_s * 1e3));
    sync::SessionOptions options = session_options(config);
    options.deadlines = {timeout, timeout, timeout, timeout, timeout, timeout, timeout, timeout};

    struct Joined {
        PolicySource source;
        std::unique_ptr<sync::Session> session;
        double speed_of_light_ms = 0;
    };
    std::unique_ptr<engine::Engine> engine;
    if (world->rank() == 0) engine = connect_engine(engine_url, policy, config, Deadline::after(timeout));
    const std::string why = detour(*world, policy.device(), engine.get(), config);
    if (!why.empty() && syncs_from_gpu(config) && config.sync.transport != "auto") {
        throw Error(fmt::format("sync.transport: {} cannot take the weights from {}: {}; use auto",
                                config.sync.transport, to_string(policy.device()), why));
    }
    if (!why.empty() && world->rank() == 0)
        log_info("weights go from {} to the engine through the host: {}", to_string(policy.device()), why);
    const Device device = why.empty() ? policy.device() : Device{};
    auto joined = std::make_shared<Joined>(
        Joined{PolicySource(policy, why.empty() ? nullptr : &world->memory()), nullptr, 0});
    joined->session = std::make_unique<sync::Session>(world, joined->source, std::move(engine), options);

    SyncPort port;
    port.memory = memory_of_sync(config, policy.config());
    port.publish = [joined, world, device](std::int64_t version) {
        joined->source.refresh();
        const sync::SyncReport report = joined->session->push(version);
        if (joined->speed_of_light_ms == 0)
            joined->speed_of_light_ms = speed_of_light_ms(*world, report.bytes, device);
        const sync::PhaseTimes& t = report.phase_ms;
        return SyncTimes{.total = report.total_ms,
                         .prepare = t.prepare,
                         .pause = t.pause,
                         .gather = t.gather,
                         .copy = t.copy,
                         .load = t.load,
                         .resume = t.resume,
                         .speed_of_light = joined->speed_of_light_ms};
    };
    port.weights_match = [joined, rank = world->rank(),
                          silent = engine_of_others(engine_url)]() -> std::optional<bool> {
        if (silent) return std::nullopt;  // its server has no route that tells which bytes it holds
        joined->source.refresh();
        const sync::WeightsMatch result = joined->session->weights_match();
        if (!result.match && rank == 0) {
            log_error("engine and trainer differ, first in tensor '{}'", result.first_mismatch);
        }
        return result.match;
    };
    return port;
}

}  // namespace tandem::trainer
