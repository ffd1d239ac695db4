#include "sync/main/commands.h"

#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/http/access.h"
#include "common/identity/job_secret.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/process/child_process.h"
#include "common/text_file.h"
#include "common/trace.h"
#include "common/user_file.h"
#include "engine_adapter/connect.h"
#include "sync/bench/bench.h"
#include "sync/bench/html.h"
#include "sync/bench/sweep_table.h"

namespace tandem::sync {
namespace {

using Command = std::vector<std::string>;

// Memory without a name in which rank 0 leaves the result: "/proc/PID/fd/FD".
class ResultFile {
  public:
    ResultFile() : fd_(::memfd_create("tandem:result", MFD_CLOEXEC)) {
        if (fd_ < 0) throw SystemError("memfd_create", errno);
    }
    ~ResultFile() { ::close(fd_); }
    ResultFile(const ResultFile&) = delete;
    ResultFile& operator=(const ResultFile&) = delete;
    std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_); }

  private:
    int fd_;
};

Command self_as(Command command_line, const std::string& subcommand) {
    command_line.at(1) = subcommand;  // tandem-sync bench …
    return command_line;
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) throw Error(fmt::format("cannot write {}", path));
}

void check_listen(const std::string& address) {
    try {
        parse_host_port(address);
    } catch (const BadInput& error) {
        throw ConfigError("command line", "--data-listen", error.what());
    }
}

using Children = std::vector<ChildProcess>;

constexpr std::chrono::minutes kEngineStarts{10};  // at most: it touches all of its weights
constexpr std::chrono::seconds kEngineEnds{30};    // once its input has ended

// A process for each engine rank; `addresses`: where their receivers listen.
Children start_engines(const BenchOptions& options, const Command& command_line, std::string& addresses) {
    Children engines;
    for (int rank = 0; rank < options.engine_tp; ++rank) {
        Command command = self_as(command_line, "bench-engine");
        command.insert(command.end(), {"--engine-rank", std::to_string(rank)});
        engines.emplace_back(ChildOptions{.command = std::move(command),
                                          .program = "/proc/self/exe",
                                          .piped = true,
                                          .dies_with_thread = false,
                                          .patience = kEngineEnds});
    }
    for (auto& engine : engines) {
        const std::string address = engine.read_line(Deadline::after(kEngineStarts));
        if (address.empty()) {
            const std::string what = "an engine-side process did not start";
            const auto end = engine.wait(Deadline::after(kEngineEnds));
            if (end && end->exit_code == 2) throw BadInput(what);  // as it has said
            throw Error(what);
        }
        addresses += address + " ";
    }
    return engines;
}

// The trainer ranks, from their start to their end.
comm::LaunchResult run_ranks(const BenchOptions& options, const Command& command_line,
                             const Children& engines, std::vector<std::string> environment) {
    comm::LaunchOptions launch;
    launch.world_size = options.world_size();
    launch.command = self_as(command_line, "bench-rank");
    launch.command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
    launch.environment = std::move(environment);
    comm::RankProcesses ranks(launch);
    return ranks.wait([&] {
        for (const auto& engine : engines) {
            if (engine.ended()) return std::string("an engine-side process ended");
        }
        return std::string();
    });
}

}  // namespace

void add_options(CLI::App& app, BenchArguments& arguments) {
    add_options(app, arguments.options);
    app.add_option("--html", arguments.html, "a page with charts, to this file");
    app.add_flag("--json", arguments.json, "one JSON object instead of a table");
}

int bench_command(const BenchArguments& arguments, const std::vector<std::string>& command_line) {
    const BenchOptions& options = arguments.options;
    options.validate();
    for (const std::string& address : options.engines) engine::check_name(address);
    if (options.over_tcp()) check_listen(options.data_listen);
    require_writable("--trace", options.trace);
    require_writable("--html", arguments.html);
    if (options.over_tcp() && http::key_from_environment().empty())
        ::setenv("TANDEM_API_KEY", random_hex().c_str(), 1);  // which engines and ranks of ours inherit
    std::string addresses;
    Children engines;
    if (options.engines.empty()) engines = start_engines(options, command_line, addresses);
    for (const std::string& address : options.engines) addresses += address + " ";
    const ResultFile result_file;
    const comm::LaunchResult end =
        run_ranks(options, command_line, engines,
                  {"TANDEM_BENCH_ENGINES=" + addresses, "TANDEM_BENCH_RESULT=" + result_file.path()});
    if (end.exit_code != 0) {
        std::cerr << "tandem-sync bench: " << end.message << "\n";
        return end.exit_code == 2 ? 2 : 1;
    }
    const nlohmann::json result = parse_json_text(read_text_file(result_file.path()));
    if (!arguments.html.empty()) write_file(arguments.html, bench_html(result));
    if (arguments.json) {
        std::cout << text_of_json(result, 2) << "\n";
    } else {
        std::cout << bench_table(result) << sweep_table(result);
    }
    if (result.at("verified").get<bool>()) return 0;
    std::cerr << "tandem-sync bench: the engine does not hold what the trainer holds\n";
    return 1;
}

int bench_rank(const BenchOptions& options) {
    set_up_logging("rank " + std::to_string(comm::rank_environment().rank));
    const auto world = comm::connect_from_environment(Deadline::after_ms(30'000));
    if (!options.trace.empty()) trace::enable(fmt::format("rank {}", world->rank()), world->rank());
    const auto connect = [&options] {
        std::istringstream list(std::getenv("TANDEM_BENCH_ENGINES"));
        const std::vector<std::string> addresses{std::istream_iterator<std::string>(list), {}};
        const Deadline deadline = Deadline::after_ms(30'000);
        if (options.transport == "nccl")
            return engine::connect_ranks(addresses, deadline,
                                         {.nccl = engine::NcclOptions{.device = options.where()}});
        Engines engines;
        const std::string pace =
            options.link_gbps > 0 ? fmt::format("?pace={}MB", options.link_gbps * 1e3) : "";
        for (const std::string& address : addresses)
            engines.push_back(engine::connect(address + pace, deadline));
        return engines;
    };
    const nlohmann::json result = run_bench(world, connect, options);
    if (!result.is_null()) std::ofstream(std::getenv("TANDEM_BENCH_RESULT")) << text_of_json(result);
    return 0;
}

}  // namespace tandem::sync
