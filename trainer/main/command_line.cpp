#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <exception>

#include "common/command_line.h"
#include "common/log.h"
#include "trainer/inspect/command.h"
#include "trainer/main/commands.h"

namespace tandem::trainer {
namespace {

void add_train(CLI::App& app, Arguments& arguments) {
    app.footer(
        "Examples:\n"
        "  tandem-train examples/quickstart/quickstart.toml\n"
        "  tandem-train examples/quickstart/quickstart.toml --set seed=3 --set mesh.dp=4 --set mesh.cp=1\n"
        "  tandem-train examples/quickstart/quickstart.toml --set checkpoint.every=50 --resume-or-start\n"
        "  torchrun --no-python --nproc-per-node 4 tandem-train examples/quickstart/quickstart.toml\n"
        "  tandem-train explain mesh\n"
        "  tandem-train inspect mesh --world-size 8 --cp 2\n\n"
        "Results: runs/NAME with report.html, summary.json, metrics.jsonl, trace.json and the checkpoint.\n"
        "Exit codes: 0 done, 1 failed, 2 bad usage or input.");
    app.add_option("config", arguments.config_file, "TOML file; every key: tandem-train explain")
        ->type_name("CONFIG.toml");
    app.add_option("--set", arguments.overrides, "Overrides a key of the file")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    CLI::Option* resume = app.add_flag(
        "--resume", arguments.resume,
        "Continues this run from its newest whole and finite checkpoint (checkpoint.every); same as --set "
        "run.resume=newest");
    app.add_flag("--resume-or-start", arguments.resume_or_start,
                 "Starts the run if there is none of this name, continues one that has not ended, and ends "
                 "with 0 if it is finished: one command for a job that is queued again")
        ->excludes(resume);
    app.add_flag("--json", arguments.json, "Prints the summary as JSON");
}

CLI::App* add_explain(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand("explain", "Explains one key, a section, or all keys");
    command->add_option("key", arguments.key, "As in mesh.dp, or a section as in mesh")->type_name("KEY");
    command->add_flag("--json", arguments.json, "As a JSON array");
    command->footer(
        "Examples:\n  tandem-train explain\n  tandem-train explain mesh.cp\n  tandem-train explain sync "
        "--json");
    return command;
}

CLI::App* add_report(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand("report", "Writes report.html of a run again, finished or not");
    command->add_option("run", arguments.run_directory, "Folder of the run")->required()->type_name("DIR");
    command->footer(
        "Example:\n  tandem-train report runs/quickstart\n\n"
        "Of a run that has not ended, or did not, the page says so and shows the steps so far:\n"
        "it is in NAME.partial.");
    return command;
}

CLI::App* add_inspect_memory(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.get_subcommand("inspect")->add_subcommand(
        "memory",
        "Peak memory of rank 0 in a configured run (with mesh.pp of the first rank of each stage), by tag, "
        "and "
        "with other choices under [memory], and where mesh.tp is above 1 under [tensor_parallel]");
    command->add_option("config", arguments.config_file, "TOML file of the run")
        ->required()
        ->type_name("CONFIG.toml");
    command->add_option("--set", arguments.overrides, "Overrides a key of the file")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command->add_flag("--json", arguments.json, "As JSON, complete");
    command->footer(
        "Example:\n  tandem-train inspect memory examples/quickstart/quickstart.toml --set mesh.dp=4 --set "
        "mesh.tp=2");
    return command;
}

// Started by this program only, so no help mentions it.
CLI::App* add_rank(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand("rank")->group("");
    command->add_option("run", arguments.run_directory)->required();
    command->add_option("engine", arguments.engine_url)->required();
    return command;
}

// A rank's failure is one line of the job's log; the parent gives the exit code.
int logged_rank(const Arguments& arguments) {
    try {
        return rank(arguments);
    } catch (const std::exception& error) {
        log_error("{}", error.what());
        return 1;
    }
}

}  // namespace

int run_command_line(int argc, char** argv) {
    Arguments arguments;
    CLI::App app("Trains a policy with sharded ranks and an inference engine that is kept in step.",
                 "tandem-train");
    fit_help(app);
    add_train(app, arguments);
    const CLI::App* explain_command = add_explain(app, arguments);
    const CLI::App* report_command = add_report(app, arguments);
    const inspect::Command inspect_command(app);
    const CLI::App* memory_command = add_inspect_memory(app, arguments);
    const CLI::App* rank_command = add_rank(app, arguments);
    try {
        app.parse(argc, argv);
        if (app.get_subcommands().empty() && arguments.config_file.empty())
            throw CLI::RequiredError("CONFIG.toml");
    } catch (const CLI::ParseError& error) {
        return end_of_parse(app, error);
    }
    if (explain_command->parsed()) return explain(arguments);
    if (memory_command->parsed()) return inspect_memory(arguments);
    if (rank_command->parsed()) return logged_rank(arguments);
    if (inspect_command.parsed()) {
        fmt::print("{}", inspect_command.run());
        return 0;
    }
    if (report_command->parsed()) return report(arguments);
    return train(arguments);
}

}  // namespace tandem::trainer
