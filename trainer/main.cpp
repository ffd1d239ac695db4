// tandem-train: the one place that joins trainer, sync and engine_adapter. Exit codes: 0 ok, 1 failed, 2 bad
// usage.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "common/comm/host_identity.h"
#include "common/comm/launch.h"
#include "common/device/devices.h"
#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/receiver/client.h"
#include "sync/bench/speed_of_light.h"
#include "sync/session/session.h"
#include "sync/session/setup.h"
#include "trainer/config/check.h"
#include "trainer/data/make_task.h"
#include "trainer/inspect/command.h"
#include "trainer/memory/report.h"
#include "trainer/report/html.h"
#include "trainer/run/device_choice.h"
#include "trainer/run/job.h"
#include "trainer/run/rank.h"
#include "trainer/run/resume.h"
#include "trainer/sync_memory.h"

namespace tandem::trainer {
namespace {

// The policy's parameters as sync sees them: its shards, or (a GPU's) copies of them in the host's memory
// `mirrors`. The optimizer has finished whenever the loop publishes.
class PolicySource final : public sync::WeightSource {
  public:
    PolicySource(const Policy& policy, MemoryPool* mirrors) : policy_(policy) {
        if (mirrors != nullptr)
            stream_ = std::make_unique<Stream>(Stream::make(policy.device(), "sync mirror"));
        for (const auto& [name, tensor] : policy.parameters()) {
            if (mirrors == nullptr) {
                tensors_.push_back({name, tensor});
                continue;
            }
            const Tensor& local = tensor.local();
            const Tensor mirror = Tensor::empty(local.shape(), local.dtype(), "sync mirror", *mirrors);
            tensors_.push_back(
                {name, DTensor::from_local(mirror, tensor.mesh(), tensor.placements(), tensor.shape())});
        }
        refresh();
    }
    // Before anybody reads them: the values as they are now. The policy's Residence is held.
    void refresh() {
        if (!stream_) return;
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            copy(*stream_, policy_.parameters()[i].second.local(), tensors_[i].tensor.local());
        stream_->synchronize();
    }
    const std::vector<sync::NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    const Policy& policy_;
    std::unique_ptr<Stream> stream_;  // of a GPU, for mirrors
    std::vector<sync::NamedTensor> tensors_;
};

// Whether a GPU's weights go to the engine through the host's memory, and why; empty: they stay on the GPU.
// `engine` is rank 0's, none elsewhere. Collective.
std::string detour(comm::Communicator& world, const Policy& policy, const engine::Engine* engine,
                   const RunConfig& config) {
    if (policy.device().type == DeviceType::cpu) return {};
    if (config.sync.mode == "delta") return "mode delta compares on the CPU";
    if (config.sync.transport == "shm") return "sync.transport is shm";
    const auto here = static_cast<std::uint64_t>(std::hash<std::string>()(comm::host_identity()));
    const bool off_gpu = engine != nullptr && engine->capabilities().device.type == DeviceType::cpu;
    using Seat = std::array<std::uint64_t, 2>;
    const Seat mine{here, off_gpu ? 1U : 0U};
    std::vector<Seat> seats(static_cast<std::size_t>(world.size()));
    world.all_gather({reinterpret_cast<const std::byte*>(&mine), sizeof(mine)},
                     {reinterpret_cast<std::byte*>(seats.data()), sizeof(mine) * seats.size()});
    if (seats[0][1] != 0) return "the engine's weights are on the CPU";
    const bool one_host =
        std::all_of(seats.begin(), seats.end(), [&](const Seat& seat) { return seat[0] == seats[0][0]; });
    return one_host ? "" : "the ranks are on several hosts";
}

// The best of a few copies of as many bytes as a sync moves. Collective.
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
    options.mode = sync::mode_from_name(config.sync.mode);
    options.bucket_bytes = static_cast<std::size_t>(config.sync.bucket_mib) << 20;
    options.depth = static_cast<int>(config.sync.depth);
    return options;
}

// Buckets that the cost model chooses for this machine may differ from the defaults that are assumed here.
std::map<std::string, std::int64_t> memory_of_sync(const RunConfig& config, const model::ModelConfig& model) {
    const bool on_gpu = config.syncs_from_gpu();
    const sync::SessionOptions options =
        sync::choose(session_options(config), on_gpu ? Device{DeviceType::cuda, 0} : Device{});
    return sync_memory(config, model, options.bucket_bytes, options.depth);
}

std::unique_ptr<engine::Engine> connect_engine(const std::string& url, const Policy& policy,
                                               const RunConfig& config, Deadline deadline) {
    if (config.sync.transport != "nccl") return engine::connect_tandem(url, deadline);
    engine::NcclOptions options{.device = policy.device()};
    log_info("weights go from {} to the engine over NCCL", to_string(policy.device()));
    if (config.sync.nccl_form != "auto") {
        options.form = config.sync.nccl_form == "send" ? engine::NcclForm::send : engine::NcclForm::broadcast;
    }
    return engine::connect_tandem_over_nccl(url, options, deadline);
}

SyncPort connect_sync(std::shared_ptr<comm::Communicator> world, const Policy& policy,
                      const std::string& engine_url, const RunConfig& config) {
    const std::chrono::milliseconds patience(static_cast<std::int64_t>(config.sync.deadline_s * 1e3));
    sync::SessionOptions options = session_options(config);
    options.deadlines = {patience, patience, patience, patience, patience, patience, patience, patience};

    struct Joined {
        PolicySource source;
        std::unique_ptr<sync::Session> session;
        double speed_of_light_ms = 0;
    };
    std::unique_ptr<engine::Engine> engine;
    if (world->rank() == 0) engine = connect_engine(engine_url, policy, config, Deadline::after(patience));
    const std::string why = detour(*world, policy, engine.get(), config);
    if (!why.empty() && config.syncs_from_gpu() && config.sync.transport != "auto") {
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
        return SyncTimes{report.total_ms, t.prepare, t.pause,  t.gather,
                         t.copy,          t.load,    t.resume, joined->speed_of_light_ms};
    };
    port.weights_match = [joined, rank = world->rank()] {
        joined->source.refresh();
        const sync::WeightsMatch result = joined->session->weights_match();
        if (!result.match && rank == 0) {
            log_error("engine and trainer differ, first in tensor '{}'", result.first_mismatch);
        }
        return result.match;
    };
    return port;
}

struct Arguments {
    std::string config_file;
    std::vector<std::string> overrides;
    bool resume = false;
    bool json = false;
    std::string key;            // explain
    std::string run_directory;  // rank, report
    std::string engine_url;     // rank
};

std::string own_program() {
    return std::filesystem::read_symlink("/proc/self/exe").string();
}

// This process is a rank that torchrun, Slurm or the like has started: rank 0 also does what a parent would
// do.
int train_as_launched_rank(RunConfig& config, config::Schema& schema, const Arguments& arguments) {
    const auto patience = std::chrono::milliseconds(static_cast<std::int64_t>(config.run.deadline_s * 1e3));
    const auto world = comm::connect_from_environment(Deadline::after(patience));
    set_up_logging(fmt::format("rank {}", world->rank()));
    Stage stage;
    std::array<char, 4096> words{};  // run folder, engine URL
    if (world->rank() == 0) {
        resolve_resume(config, schema);
        stage = make_stage(config, schema, std::filesystem::path(own_program()).parent_path());
        fmt::format_to_n(words.data(), words.size() - 2, "{}\n{}", stage.directory->path(), stage.engine_url);
    }
    world->broadcast({reinterpret_cast<std::byte*>(words.data()), words.size()}, 0);
    const std::string text = words.data();
    const std::size_t cut = text.find('\n');
    schema.read_file(text.substr(0, cut) + "/config.toml");  // with the checkpoint that rank 0 found
    run_rank(config, schema, world, text.substr(0, cut), text.substr(cut + 1), connect_sync);
    if (world->rank() == 0) finish(stage, arguments.json);
    return 0;
}

int train(const Arguments& arguments) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_file(arguments.config_file);
    for (const std::string& assignment : arguments.overrides) schema.read_override(assignment);
    if (arguments.resume) schema.read_override("run.resume='newest'");
    const bool launched = comm::launched_as_rank();
    check(config, schema, launched ? comm::rank_environment().world_size : 0);
    check_device(config, schema);
    if (launched) return train_as_launched_rank(config, schema, arguments);
    resolve_resume(config, schema);

    Stage stage = make_stage(config, schema, std::filesystem::path(own_program()).parent_path());
    const int code = run_ranks(config, stage, {own_program(), "rank"});
    if (code == 0) finish(stage, arguments.json);
    return code;
}

// One of the ranks that run_ranks starts. The folder's config.toml has been checked already.
int rank(const Arguments& arguments) {
    set_up_logging(fmt::format("rank {}", comm::rank_environment().rank));
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_file(arguments.run_directory + "/config.toml");
    const auto patience = std::chrono::milliseconds(static_cast<std::int64_t>(config.run.deadline_s * 1e3));
    const auto world = comm::connect_from_environment(Deadline::after(patience));
    run_rank(config, schema, world, arguments.run_directory, arguments.engine_url, connect_sync);
    return 0;
}

int inspect_memory(const Arguments& arguments) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_file(arguments.config_file);
    for (const std::string& assignment : arguments.overrides) schema.read_override(assignment);
    check(config, schema, 0);
    const auto task = make_task(config, schema);
    const auto report =
        memory::report_of(config, schema, *task, memory_of_sync(config, model_config(config, schema, *task)));
    fmt::print("{}",
               arguments.json ? memory::to_json(report).dump(2) + "\n" : memory::to_text(config, report));
    return 0;
}

int explain(const Arguments& arguments) {
    RunConfig config;
    const config::Schema schema = schema_of(config);
    fmt::print("{}", arguments.json ? schema.explain_json(arguments.key) : schema.explain(arguments.key));
    return 0;
}

int run(int argc, char** argv) {
    Arguments arguments;
    CLI::App app("Trains a policy with sharded ranks and an inference engine that is kept in step.",
                 "tandem-train");
    app.footer(
        "Examples:\n"
        "  tandem-train examples/quickstart/quickstart.toml\n"
        "  tandem-train examples/quickstart/quickstart.toml --set seed=3 --set mesh.dp=4 --set "
        "mesh.cp=1\n"
        "  tandem-train examples/quickstart/quickstart.toml --set checkpoint.every=50 --resume\n"
        "  torchrun --no-python --nproc-per-node 4 tandem-train examples/quickstart/quickstart.toml\n"
        "  tandem-train explain mesh\n"
        "  tandem-train inspect mesh --world-size 8 --cp 2\n\n"
        "Results: runs/NAME with report.html, summary.json, metrics.jsonl, trace.json and the "
        "checkpoint.\n"
        "Exit codes: 0 done, 1 failed, 2 bad usage or input.");
    app.add_option("config", arguments.config_file, "TOML file; every key: tandem-train explain")
        ->type_name("CONFIG.toml");
    app.add_option("--set", arguments.overrides, "Overrides a key of the file")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    app.add_flag("--resume", arguments.resume,
                 "Continues this run from its newest whole checkpoint (checkpoint.every); same as --set "
                 "run.resume=newest");
    app.add_flag("--json", arguments.json, "Prints the summary as JSON");

    CLI::App* explain_command = app.add_subcommand("explain", "Explains one key, a section, or all keys");
    explain_command->add_option("key", arguments.key, "As in mesh.dp, or a section as in mesh")
        ->type_name("KEY");
    explain_command->add_flag("--json", arguments.json, "As a JSON array");
    explain_command->footer(
        "Examples:\n  tandem-train explain\n  tandem-train explain mesh.cp\n  tandem-train explain sync "
        "--json");

    CLI::App* report_command = app.add_subcommand("report", "Writes report.html of a finished run anew");
    report_command->add_option("run", arguments.run_directory, "Folder of the run")
        ->required()
        ->type_name("DIR");
    report_command->footer("Example:\n  tandem-train report runs/quickstart");

    const inspect::Command inspect_command(app);
    CLI::App* memory_command = app.get_subcommand("inspect")->add_subcommand(
        "memory", "Peak memory of a rank in a configured run, by tag, and with other choices under [memory]");
    memory_command->add_option("config", arguments.config_file, "TOML file of the run")
        ->required()
        ->type_name("CONFIG.toml");
    memory_command->add_option("--set", arguments.overrides, "Overrides a key of the file")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    memory_command->add_flag("--json", arguments.json, "As JSON, complete");
    memory_command->footer(
        "Example:\n  tandem-train inspect memory examples/quickstart/quickstart.toml --set mesh.dp=4");

    CLI::App* rank_command = app.add_subcommand("rank")->group("");  // started by this program only
    rank_command->add_option("run", arguments.run_directory)->required();
    rank_command->add_option("engine", arguments.engine_url)->required();

    try {
        app.parse(argc, argv);
        if (app.get_subcommands().empty() && arguments.config_file.empty())
            throw CLI::RequiredError("CONFIG.toml");
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (explain_command->parsed()) return explain(arguments);
    if (memory_command->parsed()) return inspect_memory(arguments);
    if (inspect_command.parsed()) {
        fmt::print("{}", inspect_command.run());
        return 0;
    }
    if (rank_command->parsed()) {
        try {
            return rank(arguments);
        } catch (const std::exception& error) {
            log_error("{}", error.what());
            return 1;
        }
    }
    if (report_command->parsed()) {
        write_report(arguments.run_directory);
        return 0;
    }
    return train(arguments);
}

}  // namespace
}  // namespace tandem::trainer

int main(int argc, char** argv) {
    tandem::set_up_logging("train");
    try {
        return tandem::trainer::run(argc, argv);
    } catch (const std::exception& error) {
        const auto status = tandem::to_status(error);
        fmt::print(stderr, "tandem-train: {}\n", status.message);
        return tandem::exit_code(status.code);
    }
}
