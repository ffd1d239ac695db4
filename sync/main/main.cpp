// tandem-sync: the weight sync's program. Exit codes: 0 ok, 1 failed, 2 bad usage.
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/console.h"
#include "common/error.h"
#include "common/log.h"
#include "common/model/mapped_files.h"
#include "common/printable.h"
#include "sync/main/commands.h"

namespace tandem {
namespace {

int run(int argc, char** argv) {
    CLI::App app("tandem-sync: pushes a trainer's weights into an inference engine.");
    fit_help(app);
    app.require_subcommand(1);
    app.footer("Example:\n  tandem-sync bench --shapes Qwen3-0.6B --mesh 2,1 --mode direct");

    CLI::App* bench =
        app.add_subcommand("bench", "measures weight-update latency on this machine, with synthetic weights");
    bench->footer("Example:\n  tandem-sync bench --shapes Qwen3-0.6B --mesh 2,2 --iterations 10 --json");
    CLI::App* plan =
        app.add_subcommand("plan", "which bytes would travel from a trainer's layout to an engine's");
    plan->footer(
        "Example:\n  tandem-sync plan --shapes examples/shapes/moe-1t-61x384.json --mesh 256 "
        "--engine-tp 8 --engine-ep 128");
    CLI::App* push =
        app.add_subcommand("push", "brings a Hugging Face directory into running inference servers");
    push->footer(
        "Example:\n  tandem-sync push --model DIR --to vllm://127.0.0.1:8000 --to tandem://127.0.0.1:30000");
    // The processes that bench starts.
    CLI::App* engine_side = app.add_subcommand("bench-engine", "")->group("");
    CLI::App* rank_side = app.add_subcommand("bench-rank", "")->group("");

    sync::BenchArguments arguments;
    for (CLI::App* sub : {bench, engine_side, rank_side}) add_options(*sub, arguments);
    int engine_rank = 0;
    engine_side->add_option("--engine-rank", engine_rank);
    sync::PlanArguments plan_arguments;
    add_options(*plan, plan_arguments);
    sync::PushArguments push_arguments;
    add_options(*push, push_arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return end_of_parse(app, error);
    }

    // A child never outlives its parent.
    if (*engine_side) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_up_logging(*engine_side ? "engine" : "tandem-sync");
    model::read_zeros_of_truncated_files();
    try {
        if (*engine_side) return sync::bench_engine(arguments.options, engine_rank);
        if (*rank_side) return sync::bench_rank(arguments.options);
        if (*plan) return sync::plan_command(plan_arguments);
        if (*push) return sync::push_command(push_arguments);
        return sync::bench_command(arguments, {argv, argv + argc});
    } catch (const std::exception& error) {
        std::cerr << "tandem-sync: " << printable(error.what()) << "\n";
        return exit_code(to_status(error).code);
    }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
    return tandem::end_of_program("tandem-sync", tandem::run(argc, argv));
}
