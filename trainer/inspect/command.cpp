#include "trainer/inspect/command.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/error.h"
#include "common/json_text.h"
#include "common/printable.h"
#include "trainer/inspect/mesh.h"
#include "trainer/inspect/redistribute.h"
#include "trainer/inspect/schedule.h"
#include "trainer/inspect/shard.h"
#include "trainer/inspect/text.h"
#include "trainer/pipeline/csv.h"

namespace tandem::inspect {

namespace {

// A split factor costs that many chunks on every rank: one beyond any tensor's use is a slip of the hand.
Placements placements_of(const std::string& option, const std::string& text) {
    constexpr int kMostChunks = 1 << 16;
    const Placements placements = parse_placements(text);
    for (const Placement& placement : placements) {
        enforce(placement.split_factor <= kMostChunks, "{} {}: the split factor of {} must be at most {}",
                option, text, to_string(placement), kMostChunks);
    }
    return placements;
}

void write_output(const std::string& option, const std::string& file, const std::string& text) {
    if (file.empty()) return;
    errno = 0;
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    if (!out)
        throw ConfigError("command line", option,
                          fmt::format("{} cannot be written: {}", printable(file), std::strerror(errno)));
    out << text;
    if (!out.flush()) throw SystemError("write " + printable(file), errno);
}

}  // namespace

struct Command::Options {
    CLI::App* inspect = nullptr;
    CLI::App* mesh_command = nullptr;
    CLI::App* shard_command = nullptr;
    CLI::App* redistribute_command = nullptr;
    CLI::App* schedule_command = nullptr;
    ScheduleRequest schedule;
    std::string csv_file, svg_file;
    bool json = false;
    int world_size = 1;
    ParallelDegrees degrees;
    std::vector<std::string> axes;
    std::string shape, mesh, placements, from, to;
    std::string dtype = "float32";

    void add_mesh() {
        mesh_command =
            inspect->add_subcommand("mesh", "Axes, sizes and groups that degrees of parallelism make");
        mesh_command->add_option("--world-size", world_size, "Ranks in all")->required()->type_name("N");
        const auto degree = [&](const char* name, int& value, const char* meaning) {
            mesh_command->add_option(name, value, meaning)->type_name("N")->capture_default_str();
        };
        degree("--dp-replicate", degrees.dp_replicate, "Replicas of the parameters");
        degree("--dp-shard", degrees.dp_shard, "Ranks that share them; -1: what the others leave");
        degree("--cp", degrees.cp, "Context parallelism");
        degree("--tp", degrees.tp, "Tensor parallelism");
        degree("--pp", degrees.pp, "Pipeline stages");
        degree("--ep", degrees.ep, "Expert parallelism, inside dp_shard x cp x tp");
        degree("--etp", degrees.etp, "Tensor parallelism of the experts: 1 or tp");
        mesh_command->add_option("--axes", axes, "Only these axes, as in fsdp,tp")
            ->delimiter(',')
            ->type_name("AXIS,...");
        mesh_command->footer(
            "Example:\n  tandem-train inspect mesh --world-size 16 --dp-replicate 2 --cp 2 --tp 2");
    }

    // shard and redistribute: a tensor on a mesh.
    void add_tensor(CLI::App* command) {
        command->add_option("--shape", shape, "Of the whole tensor, as in 10,7")
            ->required()
            ->type_name("N,...");
        command->add_option("--mesh", mesh, "Sizes of its axes, outermost first, as in 2,2")
            ->required()
            ->type_name("N,...");
    }

    void add_shard() {
        shard_command = inspect->add_subcommand("shard", "The indices of a tensor that every rank holds");
        add_tensor(shard_command);
        shard_command
            ->add_option("--placements", placements, "One for each axis: S(dim), SS(dim,split_factor), R, P")
            ->required()
            ->type_name("P,...");
        shard_command->footer(
            "Example:\n  tandem-train inspect shard --shape 10,7 --mesh 2,2 --placements 'S(0),S(1)'");
    }

    void add_redistribute() {
        redistribute_command = inspect->add_subcommand(
            "redistribute", "Transforms from one layout to another, with the bytes that each rank receives");
        add_tensor(redistribute_command);
        redistribute_command->add_option("--from", from, "Placements before, as in S(0),R")
            ->required()
            ->type_name("P,...");
        redistribute_command->add_option("--to", to, "Placements after")->required()->type_name("P,...");
        redistribute_command
            ->add_option("--dtype", dtype, "Of the elements: float32, bfloat16, int32, int64, uint8")
            ->capture_default_str();
        redistribute_command->footer(
            "Example:\n  tandem-train inspect redistribute --shape 10,7 --mesh 2,2 --from 'S(0),S(1)' --to "
            "'R,S(0)'");
    }

    void add_schedule() {
        schedule_command = inspect->add_subcommand(
            "schedule", "What every rank of a pipeline does, the bubble, and the activations that it keeps");
        const auto option = [&](const char* name, auto& value, const char* meaning, const char* type) {
            return schedule_command->add_option(name, value, meaning)->type_name(type);
        };
        CLI::Option* name = option("--name", schedule.name, "As PyTorch's (below)", "NAME");
        CLI::Option* pp = option("--pp", schedule.ranks, "Ranks of the pipeline", "N");
        CLI::Option* stages =
            option("--stages", schedule.stages_per_rank, "Stages of each rank", "N")->capture_default_str();
        CLI::Option* microbatches = option("--microbatches", schedule.microbatches, "Of one step", "N");
        CLI::Option* from_csv =
            option("--from-csv", schedule.from_csv, "Lists in PyTorch's CSV, instead of these four", "FILE");
        name->needs(pp, microbatches);
        for (CLI::Option* of_name : {pp, stages, microbatches}) of_name->needs(name);
        for (CLI::Option* of_name : {name, pp, stages, microbatches}) of_name->excludes(from_csv);
        option("--times", schedule.times_file, "Times of the stages, as JSON (below)", "FILE");
        schedule_command->add_flag("--lowered", schedule.lowered,
                                   "Shows transfers, parameters and reductions too, as they are run");
        option("--channel-capacity", schedule.channel_capacity,
               "Transfers on the way from rank to rank before a SEND waits, in the check that lists can run",
               "N")
            ->check(CLI::NonNegativeNumber)
            ->capture_default_str();
        option("--csv", csv_file, "Writes the lists as PyTorch's compute_only; --lowered: compute_comms",
               "FILE");
        option("--svg", svg_file, "Draws it: ranks are rows, time runs to the right", "FILE");
        schedule_command->footer(
            "Schedules: GPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, "
            "DualPipeV\n"
            "Times: {\"F\": 3, \"I\": 4, \"W\": 2} for a forward, the gradient of the input and that of the\n"
            "  weights, of every stage; or an array with one such object a stage. \"B\", a whole\n"
            "  backward, is I + W unless it is there. Without --times F = I = W = 1. Transfers are\n"
            "  free; an overlapped pair takes F and then B.\n"
            "bubble: makespan - what the busiest rank has to do\n"
            "peak: activations of a stage and micro-batch that a rank keeps at once, at most\n\n"
            "Example:\n  tandem-train inspect schedule --name Interleaved1F1B --pp 4 --stages 2 "
            "--microbatches 8 "
            "--svg pipeline.svg");
    }

    std::string run_schedule() const {
        enforce(!schedule.name.empty() || !schedule.from_csv.empty(),
                "inspect schedule: say which, as in --name 1F1B --pp 4 --microbatches 8, or --from-csv FILE");
        const ScheduleReport report = inspect_schedule(schedule);
        write_output("--csv", csv_file, pipeline::to_csv(report.lists));
        if (!svg_file.empty()) write_output("--svg", svg_file, to_svg(report));
        return print(report);
    }

    template <typename Report>
    std::string print(const Report& report) const {
        return json ? text_of_json(to_json(report)) + "\n" : to_text(report);
    }
};

Command::Command(CLI::App& program) : options_(std::make_unique<Options>()) {
    options_->inspect = program.add_subcommand(
        "inspect", "Shows meshes, layouts and pipeline schedules without starting anything");
    options_->inspect->require_subcommand(1);
    options_->inspect->footer(
        "Examples:\n  tandem-train inspect mesh --help\n  tandem-train inspect mesh --world-size 8 --cp 2");
    options_->add_mesh();
    options_->add_shard();
    options_->add_redistribute();
    options_->add_schedule();
    for (CLI::App* command : {options_->mesh_command, options_->shard_command, options_->redistribute_command,
                              options_->schedule_command})
        command->add_flag("--json", options_->json, "As JSON, complete");
}

Command::~Command() = default;

bool Command::parsed() const {
    return options_->inspect->parsed();
}

std::string Command::run() const try {
    const Options& o = *options_;
    if (o.schedule_command->parsed()) return o.run_schedule();
    if (o.mesh_command->parsed()) return o.print(inspect_mesh(o.degrees, o.world_size, o.axes));
    const Shape shape = parse_shape("--shape", o.shape);
    const std::vector<int> mesh = parse_mesh("--mesh", o.mesh);
    if (o.shard_command->parsed())
        return o.print(inspect_shard(shape, mesh, placements_of("--placements", o.placements)));
    return o.print(inspect_redistribute(shape, dtype_from_name(o.dtype), mesh,
                                        placements_of("--from", o.from), placements_of("--to", o.to)));
} catch (const InvalidArgument& error) {
    throw BadInput(error.what());
}

}  // namespace tandem::inspect
