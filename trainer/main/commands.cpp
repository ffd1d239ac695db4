#include "trainer/main/commands.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/json_text.h"
#include "common/log.h"
#include "trainer/config/check.h"
#include "trainer/data/make_task.h"
#include "trainer/main/engine_check.h"
#include "trainer/main/sync_checks.h"
#include "trainer/main/sync_port.h"
#include "trainer/memory/report.h"
#include "trainer/report/html.h"
#include "trainer/run/data_files.h"
#include "trainer/run/device_choice.h"
#include "trainer/run/earlier_run.h"
#include "trainer/run/job.h"
#include "trainer/run/rank.h"
#include "trainer/run/resume.h"
#include "trainer/run/run_directory.h"
#include "trainer/run/summary.h"

namespace tandem::trainer {
namespace {

std::string own_program() {
    return std::filesystem::read_symlink("/proc/self/exe").string();
}

void read(config::Schema& schema, const Arguments& arguments) {
    schema.read_file(arguments.config_file);
    for (const std::string& assignment : arguments.overrides) schema.read_override(assignment);
}

std::shared_ptr<comm::Communicator> connect(const RunConfig& config) {
    const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config.run.deadline_s * 1e3));
    return comm::connect_from_environment(Deadline::after(timeout));
}

// Once a run: which checkpoint it goes on from, and that it removes nothing that is wanted. False: the run is
// finished, and its results have been printed.
bool prepare(RunConfig& config, config::Schema& schema, const Arguments& arguments) {
    const std::string finished = config.finished_folder();
    require_not_in_progress(config.run.output, config.run.name);
    if (arguments.resume_or_start) {
        const Standing standing = standing_of(config, schema);
        if (standing == Standing::unfinished) schema.read_override("run.resume='newest'");
        if (standing == Standing::finished) {
            log_info("{} is finished", finished);
            print_results(finished, arguments.json);
            return false;
        }
    }
    resolve_resume(config, schema);
    if (is_at_its_end(config)) {
        log_info("{} is finished: it has done its {} steps (grpo.steps)", finished, config.grpo.steps);
        print_results(finished, arguments.json);
        return false;
    }
    check_earlier_run(config, schema);
    check_engine(config, schema);
    return true;
}

void check_all(const RunConfig& config, const config::Schema& schema) {
    check(config, schema, comm::launched_as_rank() ? comm::rank_environment().world_size : 0);
    check_sync_memory(config, schema);
    check_device(config, schema);
    check_sync(config, schema);
}

// This process is a rank that torchrun, Slurm or the like has started: rank 0 also does the parent's part.
int train_as_launched_rank(RunConfig& config, config::Schema& schema, const Arguments& arguments) {
    check_settings(config, schema, comm::rank_environment().world_size);
    const auto world = connect(config);
    set_up_logging(fmt::format("rank {}", world->rank()));
    const DataFiles data = DataFiles::of_host(config, *world);
    check_all(config, schema);
    world
        ->barrier();  // hosts may share the folder that rank 0 now makes, and each has looked at what was there
    RunSetup setup;
    std::array<char, 4096> message{};  // run folder, engine URL; nothing: the run is finished
    if (world->rank() == 0 && prepare(config, schema, arguments)) {
        setup = set_up_run(config, schema, std::filesystem::path(own_program()).parent_path());
        fmt::format_to_n(message.data(), message.size() - 2, "{}\n{}", setup.directory->path(),
                         setup.engine_url);
    }
    world->broadcast({reinterpret_cast<std::byte*>(message.data()), message.size()}, 0);
    const std::string text = message.data();
    if (text.empty()) return 0;
    const std::size_t cut = text.find('\n');
    schema.read_file(text.substr(0, cut) + "/config.toml");  // with the checkpoint that rank 0 found
    run_rank(config, schema, world, text.substr(0, cut), text.substr(cut + 1), connect_sync);
    if (world->rank() == 0) finish(setup, arguments.json);
    return 0;
}

}  // namespace

int train(const Arguments& arguments) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    read(schema, arguments);
    if (arguments.resume) schema.read_override("run.resume='newest'");
    if (comm::launched_as_rank()) return train_as_launched_rank(config, schema, arguments);
    const DataFiles data(config);
    check_all(config, schema);
    if (!prepare(config, schema, arguments)) return 0;

    RunSetup setup = set_up_run(config, schema, std::filesystem::path(own_program()).parent_path());
    const int code = run_ranks(config, setup, data, {own_program(), "rank"});
    if (code == 0) finish(setup, arguments.json);
    return code;
}

int rank(const Arguments& arguments) {
    set_up_logging(fmt::format("rank {}", comm::rank_environment().rank));
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_file(arguments.run_directory + "/config.toml");
    const DataFiles data = DataFiles::of_parent(config);
    const auto world = connect(config);
    run_rank(config, schema, world, arguments.run_directory, arguments.engine_url, connect_sync);
    return 0;
}

int inspect_memory(const Arguments& arguments) {
    RunConfig config;
    config::Schema schema = schema_of(config);
    read(schema, arguments);
    check(config, schema, 0);
    check_sync_memory(config, schema);
    const auto task = make_task(config, schema);
    const model::ModelConfig model = model_config(config, schema, *task);
    const auto report = memory::report_of(
        config, schema, *task, {memory_of_sync(config, model, true), memory_of_sync(config, model, false)});
    fmt::print("{}", arguments.json ? text_of_json(memory::to_json(report), 2) + "\n"
                                    : memory::to_text(config, report));
    return 0;
}

int report(const Arguments& arguments) {
    namespace fs = std::filesystem;
    std::string directory = arguments.run_directory;
    while (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
    if (!fs::exists(directory) && fs::exists(directory + ".partial")) directory += ".partial";
    const bool finished = fs::exists(directory + "/summary.json") && !directory.ends_with(".partial");
    if (finished || !fs::exists(directory + "/config.toml")) {
        write_report(directory);
        fmt::print("report: {}/report.html\n", directory);
        return 0;
    }
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_file(directory + "/config.toml");
    const std::string so_far = write_unfinished_report(directory, facts_of(config), config.grpo.steps);
    fmt::print("{} has not ended: it has done {}; report: {}/report.html\n", directory, so_far, directory);
    return 0;
}

int explain(const Arguments& arguments) {
    RunConfig config;
    const config::Schema schema = schema_of(config);
    fmt::print("{}", arguments.json ? schema.explain_json(arguments.key) : schema.explain(arguments.key));
    return 0;
}

}  // namespace tandem::trainer
