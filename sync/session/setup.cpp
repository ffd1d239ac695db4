#include "sync/session/setup.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "common/error.h"
#include "sync/gather/cache.h"
#include "sync/plan/plan_cache.h"
#include "sync/session/announce.h"

namespace tandem::sync {
namespace {

// Staging that stays in the last-level cache makes the engine's read and the next fill cheap, so all slots
// together get three eighths of it. Smaller buckets than a mebibyte cost more in handing over than they save.
constexpr int kDefaultDepth = 3;
std::size_t default_bucket_bytes() {
    return std::clamp(last_level_cache_bytes() / 8, std::size_t{1} << 20, std::size_t{64} << 20);
}

// Engine and trainer hold the same tensors, of the same shapes. (The planner checks parts against shapes.)
void check_names(const SourceLayout& source, const EngineLayout& engines) {
    std::unordered_map<std::string, const SourceTensor*> offered;
    for (const SourceTensor& tensor : source.tensors) offered[tensor.name] = &tensor;
    std::unordered_set<std::string> wanted;
    for (const auto& tensors : engines) {
        for (const engine::TensorInfo& tensor : tensors) {
            for (const engine::Part& part : tensor.parts) {
                require(offered.contains(part.name),
                        "the engine's tensor '{}' is made of '{}', which the trainer does not hold",
                        tensor.name, part.name);
                wanted.insert(part.name);
            }
            if (!tensor.parts.empty()) continue;
            const auto found = offered.find(tensor.name);
            require(found != offered.end(), "the engine holds tensor '{}', the trainer does not",
                    tensor.name);
            require(found->second->shape == tensor.shape,
                    "tensor '{}' is {} in the trainer and {} in the engine", tensor.name,
                    to_string(found->second->shape), to_string(tensor.shape));
            wanted.insert(tensor.name);
        }
    }
    for (const SourceTensor& tensor : source.tensors)
        require(wanted.contains(tensor.name), "the trainer holds tensor '{}', the engine does not",
                tensor.name);
}

bool on_gpu(const WeightSource& source) {
    return device_of(source).type == DeviceType::cuda;
}

// Trainer and engines hold their weights on the same kind of device.
void check_devices(comm::Communicator& world, const WeightSource& source, const Engines& engines, Mode mode) {
    Health health;
    std::string mine;
    try {
        mine = on_gpu(source) ? "a GPU" : "the CPU";
        if (source.tensors().empty()) mine.clear();  // this rank has no say
    } catch (const std::exception& error) {
        health.fail("plan", "", -1, error.what());
    }
    const std::vector<std::string> all = gather_texts(world, mine);
    std::size_t first = 0;
    while (first + 1 < all.size() && all[first].empty()) ++first;
    for (std::size_t rank = first; rank < all.size(); ++rank) {
        if (all[rank] == all[first] || all[rank].empty()) continue;
        health.fail("plan", "", -1,
                    fmt::format("the weights of rank {} are on {}, those of rank {} on {}", first, all[first],
                                rank, all[rank]));
    }
    const bool gpu = all[first] == "a GPU";
    for (const auto& engine : engines) {
        const Device there = engine->capabilities().device;
        const bool reaches =
            gpu ? there.type == DeviceType::cuda : there.type == DeviceType::cpu || mode != Mode::alias;
        if (reaches) continue;
        health.fail("plan", engine->peer(), -1,
                    fmt::format("the trainer's weights are on {}, the engine's on {}: run both with the same "
                                "device",
                                gpu ? "a GPU" : "the CPU", to_string(there)));
    }
    if (mode == Mode::delta && gpu)
        health.fail(
            "plan", "", -1,
            "mode delta compares on the CPU, and the weights are on a GPU: use gather, direct or alias");
    agree(world, health, "sync set-up");
}

}  // namespace

Device device_of(const WeightSource& source) {
    const NamedTensor* first = nullptr;
    for (const NamedTensor& tensor : source.tensors()) {
        if (tensor.tensor.local().numel() == 0) continue;
        if (first == nullptr) first = &tensor;
        const Device here = tensor.tensor.local().device();
        const Device there = first->tensor.local().device();
        require(here == there, "tensor '{}' is on {} and tensor '{}' on {}: all must be on one device",
                first->name, to_string(there), tensor.name, to_string(here));
    }
    return first == nullptr ? Device{} : first->tensor.local().device();
}

SessionOptions choose(SessionOptions options, Device device) {
    // Direct has no staging: its buckets only divide the work. Delta's should hold all changes of a push, so
    // that they are found before the pause.
    constexpr std::size_t kMebibyte = std::size_t{1} << 20;
    // On a GPU a bucket must be large beside what a message and a launch cost.
    if (options.bucket_bytes == 0 && device.type == DeviceType::cuda)
        options.bucket_bytes = (options.mode == Mode::direct ? 4096 : 512) * kMebibyte;
    if (options.bucket_bytes == 0 && options.mode == Mode::direct) options.bucket_bytes = 256 * kMebibyte;
    if (options.bucket_bytes == 0 && options.mode == Mode::delta) options.bucket_bytes = 64 * kMebibyte;
    if (options.bucket_bytes == 0) options.bucket_bytes = default_bucket_bytes();
    if (options.depth == 0) options.depth = kDefaultDepth;
    return options;
}

Setup make_setup(comm::Communicator& world, const WeightSource& source, const Engines& engines,
                 const SessionOptions& options) {
    Health health;
    const bool no_engine =
        engines.empty() || std::any_of(engines.begin(), engines.end(), [](const auto& e) { return !e; });
    if (world.rank() == 0 && no_engine) health.fail("connect", "", -1, "rank 0 was given no engine");
    agree(world, health, "sync set-up");

    check_devices(world, source, engines, options.mode);
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
        require(options.depth >= 2,
                "a depth of {}: one bucket is filled while another is loaded, so at least 2", options.depth);
        SourceLayout layout = join_sources(announced);
        quantized = add_quantized(layout, wanted);
        require(
            quantized.empty() || !on_gpu(source),
            "the engine wants '{}' quantised, which is done on the CPU: keep the trainer's weights there, or "
            "the engine's in bfloat16",
            quantized.empty() ? "" : layout.tensors[static_cast<std::size_t>(quantized[0].values)].name);
        require(quantized.empty() || options.mode != Mode::delta,
                "mode {} cannot bring quantised tensors over, like '{}': use gather", mode_name(options.mode),
                quantized.empty() ? "" : layout.tensors[static_cast<std::size_t>(quantized[0].values)].name);
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
        health.fail("plan", "", -1, error.what());
    }
    agree(world, health, "sync set-up");
    return {std::move(*plan), std::move(local), std::move(quantized)};
}

}  // namespace tandem::sync
