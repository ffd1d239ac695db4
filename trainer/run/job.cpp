#include "trainer/run/job.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/console.h"
#include "common/error.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/printable.h"
#include "common/progress.h"
#include "common/text_file.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/room.h"
#include "trainer/data/make_task.h"
#include "trainer/report/html.h"
#include "trainer/report/trace_files.h"
#include "trainer/run/data_files.h"
#include "trainer/run/device_choice.h"
#include "trainer/run/disk_check.h"
#include "trainer/run/earlier_run.h"
#include "trainer/run/resume.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t interrupted_by = 0;

void remember_signal(int signal) {
    interrupted_by = signal;
}

// While it lives, Ctrl-C, SIGTERM, SIGHUP and SIGQUIT are remembered instead of ending the process. The last two stay
// ignored where whoever started it has them ignored (nohup).
class SignalWatch {
  public:
    SignalWatch() {
        interrupted_by = 0;
        for (const int signal : kSignals) {
            const auto before = std::signal(signal, remember_signal);
            if (before == SIG_IGN && signal != SIGINT) std::signal(signal, SIG_IGN);
        }
    }
    ~SignalWatch() {
        for (const int signal : kSignals) {
            if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
        }
    }
    std::string reason() const {
        return interrupted_by == 0
                   ? ""
                   : fmt::format("interrupted by signal {}", static_cast<int>(interrupted_by));
    }

  private:
    static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
};

}  // namespace

RunSetup set_up_run(const RunConfig& c, const config::Schema& schema, const std::string& program_directory) {
    const std::string program = program_directory + "/tandem-engine";
    if (c.engine.url.empty() && ::access(program.c_str(), X_OK) != 0) {
        throw ConfigError(program, "", "is missing; build it, or give engine.url");
    }
    const auto task = make_task(c, schema);
    const model::ModelConfig model = model_config(c, schema, *task);
    check_room(c, schema, model);
    RunSetup setup;
    setup.directory = std::make_unique<RunDirectory>(c.run.output, c.run.name, fate_of_working_folder(c));
    setup.finished_before = fate_of_finished_run(c);
    setup.room = {.what = "report.html",
                  .folder = setup.directory->path(),
                  .bytes = std::uint64_t{128} << 10,
                  .limit_s = c.checkpoint.wait_for_room_s};
    setup.directory->write("config.toml", schema.to_toml());
    if (const auto digests = data_digests(c); !digests.empty())
        setup.directory->write("data.json", text_of_json(digests, 2) + "\n");
    if (!c.run.resume.empty()) {
        for (const std::string& name : log_files(read_manifest(c.run.resume)))
            fs::copy_file(c.run.resume + "/" + name, setup.directory->path() + "/" + name);
    }
    setup.engine_url = c.engine.url;
    if (!c.engine.url.empty()) return setup;

    // The engine learns the architecture now and the weights from the first sync.
    const std::string folder = setup.directory->path() + "/engine";
    fs::create_directory(folder);
    setup.directory->write("engine/config.json", model::to_json(model));
    std::vector<std::string> command = {program,
                                        "serve",
                                        "--model",
                                        folder,
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--dtype",
                                        std::string(dtype_name(dtype_from_name(c.engine.dtype))),
                                        "--threads",
                                        std::to_string(c.engine.threads),
                                        "--device",
                                        to_string(device_of_engine(c)),
                                        "--load-format",
                                        "dummy",
                                        "--random-seed",
                                        std::to_string(static_cast<std::uint64_t>(c.run.seed)),
                                        "--skip-tokenizer-init",
                                        "--die-with-parent"};
    if (c.mesh.tp > 1) command.insert(command.end(), {"--sum-parts", std::to_string(c.mesh.tp)});
    if (!c.engine.packed_weights) command.emplace_back("--no-packed-weights");
    command.insert(command.end(), {"--kv-fraction", std::to_string(c.engine.kv_fraction)});
    if (c.engine.disable_cuda_graph) command.emplace_back("--disable-cuda-graph");
    const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(c.engine.deadline_s * 1e3));
    setup.engine = std::make_unique<EngineProcess>(command, setup.directory->path() + "/engine.log",
                                                   Deadline::after(timeout));
    setup.engine_url = setup.engine->url();
    ::setenv("TANDEM_API_KEY", setup.engine->api_key().c_str(), 1);  // for the ranks
    return setup;
}

int run_ranks(const RunConfig& c, RunSetup& setup, const DataFiles& data,
              const std::vector<std::string>& rank_command) {
    comm::LaunchOptions options;
    options.environment = data.environment();
    options.world_size = static_cast<int>(c.world_size());
    options.command = rank_command;
    options.command.insert(options.command.end(), {setup.directory->path(), setup.engine_url});

    std::signal(SIGINT, SIG_IGN);  // inherited by the ranks: Ctrl-C is for this process to handle
    comm::RankProcesses ranks(options);
    const SignalWatch signals;
    std::string reason;
    const comm::LaunchResult result = ranks.wait([&] {
        reason = signals.reason();
        if (reason.empty() && setup.engine) reason = setup.engine->ended();
        return reason;
    });
    if (result.exit_code == 0 && reason.empty()) return 0;
    // A rank may notice the engine's end before we do, and then ends too: the engine is what to name.
    if (reason.empty() && setup.engine) reason = setup.engine->ended();
    tell(stderr, fmt::format("tandem-train: {}; partial results are in {}\n",
                             printable(reason.empty() ? result.message : reason), setup.directory->path()));
    return 1;
}

void finish(RunSetup& setup, bool json) {
    RunDirectory& directory = *setup.directory;
    setup.engine.reset();
    fs::remove_all(directory.path() + "/engine");
    merge_trace_parts(directory.path());
    const auto alone = comm::solo();
    write_when_there_is_room(*alone, setup.room,
                             [&] { together(*alone, [&] { write_report(directory.path()); }); });
    const std::string kept = directory.publish(setup.finished_before);
    if (!kept.empty()) log_info("the earlier run of this name is {} now", kept);
    print_results(directory.path(), json);
}

void print_results(const std::string& directory, bool json) {
    const auto s = parse_ordered_json_text(read_text_file(directory + "/summary.json"));
    if (json) {
        fmt::print("{}\n", text_of_json(s, 2));
        return;
    }
    const auto number = [&](const char* key) { return s.at(key).get<double>(); };
    std::string sampled;
    if (s.contains("reward_first"))
        sampled = fmt::format("{:.3f} -> {:.3f} sampled, ", number("reward_first"), number("reward_last"));
    fmt::print("reward {}{:.3f} -> {:.3f} greedy, over held-out prompts\n", sampled, number("greedy_first"),
               number("greedy_last"));
    fmt::print("{} weight syncs, median {:.1f} ms; {}log-probs differ by at most {:.1e}\n",
               s.at("weight_version").get<std::int64_t>(), number("sync_ms_median"),
               s.at("weights_match").is_null() ? "" : "engine and trainer hold equal weights; ",
               number("logprob_max_abs_diff"));
    if (const auto skipped = s.value("skipped_steps", 0); skipped > 0)
        fmt::print("{} steps were left out: they were not finite (metrics.jsonl says what)\n", skipped);
    fmt::print("{}; report: {}/report.html\n", format_seconds(number("seconds")), directory);
}

}  // namespace tandem::trainer
