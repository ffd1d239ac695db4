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
#include "common/log.h"
#include "trainer/config/check.h"
#include "trainer/data/make_task.h"
#include "trainer/main/engine_check.h"
#include "trainer/main/sync_checks.h"
#include "trainer/main/sync_port.h"
#include "trainer/memory/report.h"
#include "trainer/run/device_choice.h"
#include "trainer/run/job.h"
#include "trainer/run/rank.h"
#include "trainer/run/resume.h"

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

// This process is a rank that torchrun, Slurm or the like has started: rank 0 also does the parent's part.
int train_as_launched_rank(RunConfig& config, config::Schema& schema, const Arguments& arguments) {
    const auto world = connect(config);
    set_up_logging(fmt::format("rank {}", world->rank()));
    RunSetup setup;
    std::array<char, 4096> message{};  // run folder, engine URL
    if (world->rank() == 0) {
        resolve_resume(config, schema);
        check_engine(config, schema);
        setup = set_up_run(config, schema, std::filesystem::path(own_program()).parent_path());
        fmt::format_to_n(message.data(), message.size() - 2, "{}\n{}", setup.directory->path(),
                         setup.engine_url);
    }
    world->broadcast({reinterpret_cast<std::byte*>(message.data()), message.size()}, 0);
    const std::string text = message.data();
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
    const bool launched = comm::launched_as_rank();
    check(config, schema, launched ? comm::rank_environment().world_size : 0);
    check_sync_memory(config, schema);
    check_device(config, schema);
    check_sync(config, schema);
    if (launched) return train_as_launched_rank(config, schema, arguments);
    resolve_resume(config, schema);
    check_engine(config, schema);

    RunSetup setup = set_up_run(config, schema, std::filesystem::path(own_program()).parent_path());
    const int code = run_ranks(config, setup, {own_program(), "rank"});
    if (code == 0) finish(setup, arguments.json);
    return code;
}

int rank(const Arguments& arguments) {
    set_up_logging(fmt::format("rank {}", comm::rank_environment().rank));
    RunConfig config;
    config::Schema schema = schema_of(config);
    schema.read_file(arguments.run_directory + "/config.toml");
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

}  // namespace tandem::trainer
