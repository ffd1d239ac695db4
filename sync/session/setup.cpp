#include "sync/session/setup.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "common/device/devices.h"
#include "common/error.h"
#include "common/identity/host_identity.h"
#include "common/log.h"
#include "common/model/wrapped_names.h"
#include "sync/plan/plan_cache.h"
#include "sync/session/announce.h"
#include "sync/session/modes.h"
#include "sync/session/said_architecture.h"
#include "sync/strategy/bucket_sizes.h"

namespace tandem::sync {
namespace {

// --- do engine and trainer hold the same?

// Engine and trainer hold the same tensors, of the same shapes. (The planner checks parts against shapes.)
void check_names(const SourceLayout& source, const EngineLayout& engines) {
    std::unordered_map<std::string, const SourceTensor*> offered;
    std::vector<std::string> names;
    for (const SourceTensor& tensor : source.tensors) {
        offered[tensor.name] = &tensor;
        names.push_back(tensor.name);
    }
    const std::string wrapped = model::wrapped_names(names);
    std::unordered_set<std::string> wanted;
    for (const auto& tensors : engines) {
        for (const engine::TensorInfo& tensor : tensors) {
            for (const engine::Part& part : tensor.parts) {
                enforce(offered.contains(part.name),
                        "the engine's tensor '{}' is made of '{}', which the trainer does not hold{}",
                        tensor.name, part.name, wrapped);
                wanted.insert(part.name);
            }
            if (!tensor.parts.empty()) continue;
            const auto found = offered.find(tensor.name);
            enforce(found != offered.end(), "the engine holds tensor '{}', the trainer does not{}",
                    tensor.name, wrapped);
            enforce(found->second->shape == tensor.shape,
                    "tensor '{}' is {} in the trainer and {} in the engine", tensor.name,
                    to_string(found->second->shape), to_string(tensor.shape));
            wanted.insert(tensor.name);
        }
    }
    for (const SourceTensor& tensor : source.tensors)
        enforce(wanted.contains(tensor.name), "the trainer holds tensor '{}', the engine does not{}",
                tensor.name, wrapped);
}

// --- does the mode work where they are?

// A rank's kind of device and its host.
struct Whereabouts {
    std::string kind;  // "a GPU", "the CPU"; empty: this rank holds nothing
    std::string host;
};

std::vector<Whereabouts> share_whereabouts(comm::Communicator& world, const WeightSource& source,
                                           PushStatus& status) {
    std::string kind;
    try {
        if (const auto device = device_of(source))
            kind = device->type == DeviceType::cuda ? "a GPU" : "the CPU";
    } catch (const std::exception& error) {
        status.fail("plan", "", -1, error.what());
    }
    std::vector<Whereabouts> all;
    for (const std::string& text : gather_texts(world, kind + '\n' + host_identity())) {
        const std::size_t end = text.find('\n');
        all.push_back({text.substr(0, end), text.substr(end + 1)});
    }
    return all;
}

// Empty: it works.
std::string refusal_text(Mode mode, const Setting& setting) {
    const auto refused = refusal(mode, setting);
    if (!refused) return "";
    return (refused->about == Refusal::About::mode ? "mode " : "") + refused->sentence();
}

// Collective. Whether the mode works between these ranks and these engines, as far as that is known before
// their tensors are; returns what is known. Throws SyncError.
Setting check_setting(comm::Communicator& world, const WeightSource& source, const Engines& engines,
                      Mode mode) {
    PushStatus status;
    const std::vector<Whereabouts> all = share_whereabouts(world, source, status);
    std::size_t first = 0;
    while (first + 1 < all.size() && all[first].kind.empty()) ++first;
    Setting setting;
    if (all[first].kind == "a GPU") setting.weights = {DeviceType::cuda, 0};
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        setting.several_hosts = setting.several_hosts || all[rank].host != all[0].host;
        if (rank < first || all[rank].kind == all[first].kind || all[rank].kind.empty()) continue;
        status.fail("plan", "", -1,
                    fmt::format("the weights of rank {} are on {}, those of rank {} on {}", first,
                                all[first].kind, rank, all[rank].kind));
    }
    const auto note_refusal = [&](const std::string& peer) {
        const std::string why = refusal_text(mode, setting);
        if (!why.empty()) status.fail("plan", peer, -1, why);
    };
    note_refusal("");
    for (const auto& engine : engines) {
        setting.engine = engine->capabilities().device;
        setting.transport = engine->capabilities().remote ? "tcp" : "auto";
        setting.engine_reads_in_place = engine->capabilities().alias;
        setting.engine_stages = engine->capabilities().takes_gathered_only();
        note_refusal(engine->peer());
    }
    throw_on_any_failure(world, status, "sync set-up");
    return setting;
}

}  // namespace

// --- defaults for where the weights lie

std::optional<Device> device_of(const WeightSource& source) {
    const NamedTensor* first = nullptr;
    for (const NamedTensor& tensor : source.tensors()) {
        if (tensor.tensor.local().numel() == 0) continue;
        if (first == nullptr) first = &tensor;
        const Device here = tensor.tensor.local().device();
        const Device there = first->tensor.local().device();
        enforce(here == there, "tensor '{}' is on {} and tensor '{}' on {}: all must be on one device",
                first->name, to_string(there), tensor.name, to_string(here));
    }
    if (first == nullptr) return {};
    return first->tensor.local().device();
}

Device shared_device(comm::Communicator& world, const WeightSource& source) {
    std::optional<Device> own;
    try {
        own = device_of(source);
    } catch (const InvalidArgument&) {
        own = Device{};
    }
    const std::vector<std::string> all = gather_texts(world, own ? to_string(*own) : "");
    if (own) return *own;
    const auto first = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
    return first == all.end() ? Device{} : device_from_name(*first);
}

SessionOptions choose(SessionOptions options, Device device) {
    const ModeTraits& mode = traits(options.mode);
    if (options.bucket_bytes == 0)
        options.bucket_bytes = device.type == DeviceType::cuda ? mode.gpu_bucket_bytes : mode.bucket_bytes;
    if (options.bucket_bytes == 0) options.bucket_bytes = default_bucket_bytes();
    if (options.depth == 0) options.depth = kDefaultDepth;
    return options;
}

// --- is it the same model?

bool require_same_architecture(const WeightSource& source, const engine::Engine& engine) {
    const std::optional<model::Architecture>& theirs = engine.capabilities().architecture;
    const model::Architecture* const ours = theirs ? source.architecture() : nullptr;
    if (ours == nullptr) return false;
    const auto differences = ours->differences(*theirs);
    enforce(differences.empty(),
            "{}: it would compute something else with these weights; start it on a directory of this model",
            model::to_text(differences, "the model that is pushed", "the engine"));
    return true;
}

void warn_of_another_directory(const WeightSource& source, const engine::Engine& engine) {
    const engine::Capabilities& its = engine.capabilities();
    if (its.architecture || its.directory.empty()) return;
    try {
        const model::Architecture* const ours = source.architecture();
        const SaidArchitecture said = SaidArchitecture::of_directory(its.directory);
        if (ours == nullptr || said.known() == nullptr) return;
        const auto differences = ours->differences(*said.known());
        if (differences.empty()) return;
        log_warn(
            "{} does not say what it computes, but {}, which it was started with, is of another model: {}",
            engine.peer(), its.directory,
            model::to_text(differences, "the model that is pushed", "that directory"));
    } catch (const ConfigError&) {  // neither is refused for what only a directory says
    }
}

// --- all of it, agreed by all ranks

Setup make_setup(comm::Communicator& world, const WeightSource& source, const Engines& engines,
                 const SessionOptions& options) {
    PushStatus status;
    const bool no_engine =
        engines.empty() || std::any_of(engines.begin(), engines.end(), [](const auto& e) { return !e; });
    if (world.rank() == 0 && no_engine) status.fail("connect", "", -1, "rank 0 was given no engine");
    for (const auto& engine : engines) {
        try {
            if (!engine) continue;
            require_same_architecture(source, *engine);
            warn_of_another_directory(source, *engine);
        } catch (const std::exception& error) {
            status.fail("plan", engine->peer(), -1, error.what());
        }
    }
    throw_on_any_failure(world, status, "sync set-up");

    Setting setting = check_setting(world, source, engines, options.mode);
    EngineLayout wanted;
    for (const auto& engine : engines) wanted.push_back(engine->capabilities().tensors);
    std::string layouts = broadcast_text(world, to_text(wanted));
    wanted = engine_layout_from_text(layouts);
    const std::vector<std::string> announced = gather_texts(world, to_text(source));
    for (const std::string& one : announced) layouts += '\n' + one;
    std::optional<ReshardPlan> plan;
    std::vector<int> local;
    std::vector<QuantizedTensor> quantized;
    try {
        const int least = traits(options.mode).least_depth;
        enforce(options.depth >= least, "a depth of {}: mode {} needs at least {}", options.depth,
                mode_name(options.mode), least);
        SourceLayout layout = join_sources(announced);
        quantized = add_quantized(layout, wanted);
        if (!quantized.empty()) {
            setting.quantised = true;
            setting.quantised_tensor = layout.tensors[static_cast<std::size_t>(quantized[0].values)].name;
            const std::string why = refusal_text(options.mode, setting);
            enforce(why.empty(), "{}", why);
        }
        check_names(layout, wanted);
        std::unordered_map<std::string, int> mine;
        for (const NamedTensor& tensor : source.tensors())
            mine.emplace(tensor.name, static_cast<int>(mine.size()));
        for (const SourceTensor& tensor : layout.tensors) {
            const auto found = mine.find(tensor.name);
            local.push_back(found == mine.end() ? -1 : found->second);
        }
        plan = plan_cache().get(layouts,
                                [&] { return ReshardPlan::make(std::move(layout), std::move(wanted)); });
    } catch (const std::exception& error) {
        status.fail("plan", "", -1, error.what());
    }
    throw_on_any_failure(world, status, "sync set-up");
    return {std::move(*plan), std::move(local), std::move(quantized)};
}

}  // namespace tandem::sync
