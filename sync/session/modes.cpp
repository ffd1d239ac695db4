#include "sync/session/modes.h"

#include <array>
#include <vector>

#include "common/error.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// In the order of Mode. Direct has no staging: its buckets only divide the work. Delta's should hold all
// changes of a push, so that they are found before the pause. On a GPU a bucket must be large beside what a
// message and a launch cost.
constexpr auto kModes = std::to_array<ModeTraits>({
    {.name = "gather",
     .make = make_gather,
     .from_gpu = true,
     .quantised = true,
     .several_hosts = true,
     .over_nccl = true,
     .every_byte = true,
     .staged = true,
     .least_depth = 1,
     .gpu_bucket_bytes = 768 * kMebibyte,
     .cost_model = CostModel::gather},
    {.name = "direct",
     .make = make_direct,
     .from_gpu = true,
     .quantised = true,
     .opens_shards = true,
     .every_byte = true,
     .bucket_bytes = 256 * kMebibyte,
     .gpu_bucket_bytes = 4096 * kMebibyte,
     .cost_model = CostModel::direct},
    {.name = "alias",
     .make = make_alias,
     .from_gpu = true,
     .quantised = true,
     .in_place = true,
     .arena_copies = 2,
     .gpu_bucket_bytes = 512 * kMebibyte},
    {.name = "delta",
     .make = make_delta,
     .cpu_work = "compares",
     .staged = true,
     .keeps_base = true,
     .bucket_bytes = 64 * kMebibyte},
});

template <typename Wanted>
std::string names_where(const Wanted& wanted, std::string_view last_joint) {
    std::vector<std::string_view> names;
    for (const ModeTraits& mode : kModes) {
        if (wanted(mode)) names.push_back(mode.name);
    }
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? last_joint : ", ";
        text += names[i];
    }
    return text;
}

bool on_gpu(Device device) {
    return device.type == DeviceType::cuda;
}

// The rules: first those that no mode escapes, then those of the mode. Where another mode is the way out, the
// advice is left empty.
std::optional<Refusal> first_refusal(const ModeTraits& mode, const Setting& s) {
    using About = Refusal::About;
    const bool gpu = on_gpu(s.weights);
    const std::string like = s.quantised_tensor.empty() ? "" : fmt::format(", like '{}'", s.quantised_tensor);

    const bool for_cpu = s.transport == "shm" || s.transport == "tcp";
    if (s.transport != "auto" && gpu == for_cpu) {
        return Refusal{About::transport,
                       fmt::format("{} does not reach memory of {}", s.transport, to_string(s.weights)),
                       "shm and tcp are for the CPU, cuda_ipc and nccl for GPUs"};
    }
    const bool engine_on_gpu = s.engine ? on_gpu(*s.engine) : gpu;
    if (engine_on_gpu != gpu && (gpu || mode.in_place)) {
        return Refusal{About::device,
                       fmt::format("the trainer's weights are on {}, the engine's on {}",
                                   gpu ? "a GPU" : "the CPU", to_string(*s.engine)),
                       "run both with the same device"};
    }
    if (gpu && s.quantised) {
        return Refusal{
            About::dtype,
            fmt::format("weights are quantised on the CPU{}, and the trainer's are on a GPU", like),
            "keep them on the CPU, or the engine's in bfloat16 or float32"};
    }
    if (gpu && s.several_hosts) {
        return Refusal{About::device, "weights on a GPU need all trainer ranks on one host",
                       "keep them on the CPU"};
    }

    if (s.transport == "nccl" && !mode.over_nccl) {
        return Refusal{About::mode,
                       fmt::format("over nccl trainer rank 0 sends from its own memory, which only {} fills",
                                   mode_names(" and ", &ModeTraits::over_nccl)),
                       fmt::format("use {} instead of {}, or another transport",
                                   mode_names(" or ", &ModeTraits::over_nccl), mode.name)};
    }
    if (s.transport == "tcp" && mode.in_place) {
        return Refusal{
            About::mode,
            fmt::format("{} lets the engine read the trainer's memory in place, and over TCP it gets a copy",
                        mode.name),
            ""};
    }
    if (gpu && !mode.from_gpu) {
        return Refusal{
            About::mode,
            fmt::format("{} {} on the CPU, and the weights are on a GPU", mode.name, mode.cpu_work), ""};
    }
    if (s.quantised && !mode.quantised)
        return Refusal{About::mode, fmt::format("{} cannot bring quantised tensors over{}", mode.name, like),
                       ""};
    if (s.several_hosts && !mode.several_hosts) {
        return Refusal{About::mode, fmt::format("{} needs all trainer ranks on one host", mode.name),
                       "use mode " + mode_names(" or ", &ModeTraits::several_hosts)};
    }
    if (mode.in_place && !s.engine_reads_in_place) {
        return Refusal{About::mode,
                       fmt::format("{} needs an engine that can read weights in place", mode.name), ""};
    }
    if (s.engine_stages && (mode.opens_shards || mode.keeps_base)) {
        return Refusal{
            About::mode,
            fmt::format("{} needs an engine that {}, and this one is given whole versions in a directory",
                        mode.name, mode.keeps_base ? "applies changes" : "opens the trainer's memory"),
            ""};
    }
    if (gpu && mode.opens_shards && s.shards_leave) {
        return Refusal{
            About::mode,
            fmt::format("{} lets the engine open the shards' memory, and a GPU's memory that is given "
                        "back between two pushes cannot be opened",
                        mode.name),
            ""};
    }
    if (s.engine_drops_weights && !mode.every_byte) {
        return Refusal{
            About::mode,
            fmt::format("{} does not bring every byte, and the engine drops its weights between two pushes",
                        mode.name),
            ""};
    }
    return std::nullopt;
}

}  // namespace

const ModeTraits& traits(Mode mode) {
    return kModes[static_cast<std::size_t>(mode)];
}

std::string_view mode_name(Mode mode) {
    return traits(mode).name;
}

Mode mode_from_name(std::string_view name) {
    for (std::size_t i = 0; i < kModes.size(); ++i) {
        if (name == kModes[i].name) return static_cast<Mode>(i);
    }
    throw BadInput(fmt::format("no mode '{}'; there are {}", name, mode_names(", ")));
}

std::string mode_names(std::string_view last_joint, bool ModeTraits::*trait) {
    return names_where([&](const ModeTraits& mode) { return trait == nullptr || mode.*trait; }, last_joint);
}

std::optional<Refusal> refusal(Mode mode, const Setting& setting) {
    std::optional<Refusal> found = first_refusal(traits(mode), setting);
    if (found && found->advice.empty()) {
        const auto works = [&](const ModeTraits& other) { return !first_refusal(other, setting); };
        found->advice = "use " + names_where(works, " or ");
    }
    return found;
}

}  // namespace tandem::sync
