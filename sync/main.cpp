// tandem-sync: the weight sync's program. `bench` starts trainer ranks and one engine-side process with a
// real receiver, and measures what an update costs.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/receiver/client.h"
#include "engine_adapter/receiver/receiver.h"
#include "sync/bench/bench.h"
#include "sync/bench/shapes.h"

extern char** environ;

namespace {

using namespace tandem;

std::vector<std::string> g_arguments;  // this program's own, for starting itself again

// Weights without an engine around them: what the receiver needs, nothing else.
class BareWeights final : public engine::WeightTarget {
  public:
    explicit BareWeights(const std::vector<engine::TensorInfo>& tensors) {
        for (const auto& tensor : tensors) {
            memory_.emplace_back(engine::tensor_bytes(tensor), "engine weights");
            std::fill_n(memory_.back().data(), memory_.back().bytes(), std::byte{0});
            weights_.push_back({tensor, memory_.back().span()});
        }
    }
    const std::vector<engine::WeightSlot>& weights() const override { return weights_; }
    std::int64_t version() const override { return version_; }
    void begin_update(std::int64_t) override {}
    void commit_update(std::int64_t version) override { version_ = version; }
    void abort_update(const std::string& reason, bool) override {
        spdlog::error("update aborted: {}", reason);
    }

  private:
    std::vector<Buffer> memory_;
    std::vector<engine::WeightSlot> weights_;
    std::int64_t version_ = 0;
};

// The engine's process: says where its receiver listens, then serves until its standard input ends.
int run_engine_side(const sync::BenchOptions& options) {
    BareWeights weights(sync::tensors_of(sync::model_by_name(options.shapes), options.engine_dtype));
    const engine::Receiver receiver(weights);
    std::cout << receiver.address() << std::endl;
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
    return 0;
}

// A child that runs `tandem-sync ARGUMENTS`, with pipes to its standard input and output. Ends when
// destroyed.
class Child {
  public:
    explicit Child(std::vector<std::string> arguments) {
        int in[2];
        int out[2];
        if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw SystemError("pipe2", errno);
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
        std::vector<char*> argv;
        for (auto& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(in[0]);
        ::close(out[1]);
        input_ = in[1];
        output_ = ::fdopen(out[0], "r");
        if (error != 0) throw SystemError("posix_spawn", error);
    }
    ~Child() {
        ::close(input_);
        std::fclose(output_);
        if (!ended_) ::waitpid(pid_, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    std::string read_line() {
        std::string line;
        for (int c = 0; (c = std::fgetc(output_)) != EOF && c != '\n';) line.push_back(static_cast<char>(c));
        return line;
    }
    bool running() {
        if (!ended_) ended_ = ::waitpid(pid_, nullptr, WNOHANG) == pid_;
        return !ended_;
    }

  private:
    pid_t pid_ = -1;
    bool ended_ = false;
    int input_ = -1;
    std::FILE* output_ = nullptr;
};

// A folder that goes away with its owner; the ranks' result travels through a file in it.
struct TemporaryFolder {
    std::filesystem::path path;
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "tandem-bench-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw SystemError("mkdtemp " + name, errno);
        path = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

std::vector<std::string> self_as(const std::string& subcommand) {
    std::vector<std::string> command = g_arguments;  // tandem-sync bench …
    command.at(1) = subcommand;
    return command;
}

int run_rank(const sync::BenchOptions& options) {
    set_up_logging("rank " + std::to_string(comm::rank_environment().rank));
    const auto world = comm::connect_from_environment(Deadline::after_ms(30'000));
    std::unique_ptr<engine::Engine> engine;
    if (world->rank() == 0)
        engine = engine::connect_receiver(std::getenv("TANDEM_BENCH_ENGINE"), Deadline::after_ms(30'000));
    const nlohmann::json result = sync::run_bench(world, std::move(engine), options);
    if (!result.is_null()) std::ofstream(std::getenv("TANDEM_BENCH_RESULT")) << result.dump();
    return 0;
}

int run_bench(const sync::BenchOptions& options, bool json) {
    options.validate();
    Child engine(self_as("bench-engine"));
    const std::string address = engine.read_line();
    if (address.empty()) throw Error("the engine-side process did not start");
    const TemporaryFolder folder;
    const std::filesystem::path result_file = folder.path / "result.json";
    comm::LaunchOptions launch;
    launch.world_size = options.world_size();
    launch.command = self_as("bench-rank");
    launch.command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
    launch.environment = {"TANDEM_BENCH_ENGINE=" + address, "TANDEM_BENCH_RESULT=" + result_file.string()};
    comm::RankProcesses ranks(launch);
    const comm::LaunchResult end = ranks.wait(
        [&] { return engine.running() ? std::string() : std::string("the engine-side process ended"); });
    if (end.exit_code != 0) {
        std::cerr << "tandem-sync bench: " << end.message << "\n";
        return 1;
    }
    const nlohmann::json result = nlohmann::json::parse(std::ifstream(result_file));
    if (json)
        std::cout << result.dump(2) << "\n";
    else
        std::cout << sync::bench_table(result);
    if (result.at("verified").get<bool>()) return 0;
    std::cerr << "tandem-sync bench: the engine does not hold what the trainer holds\n";
    return 1;
}

void add_options(CLI::App& app, sync::BenchOptions& options, std::string& source, std::string& target,
                 bool& json) {
    std::string names;
    for (const auto& name : sync::shape_names()) names.append(names.empty() ? "" : ", ").append(name);
    app.add_option("--shapes", options.shapes, "model whose shapes to push: " + names)->capture_default_str();
    app.add_option("--mesh", options.mesh, "trainer ranks as dp,cp")->delimiter(',')->capture_default_str();
    app.add_flag("--shard-all", options.shard_all, "shard over cp as well; default: replicate over cp");
    app.add_option("--bucket-mib", options.bucket_mib, "bucket size; 0: chosen for this machine")
        ->capture_default_str();
    app.add_option("--depth", options.depth, "buckets in flight; 0: chosen")->capture_default_str();
    app.add_option("--iterations", options.iterations, "timed syncs")->capture_default_str();
    app.add_option("--source-dtype", source, "float32 or bfloat16, as the trainer holds it")
        ->capture_default_str();
    app.add_option("--engine-dtype", target, "float32 or bfloat16, as the engine holds it")
        ->capture_default_str();
    app.add_flag("--json", json, "one JSON object instead of a table");
}

}  // namespace

int main(int argc, char** argv) {
    g_arguments.assign(argv, argv + argc);
    CLI::App app("tandem-sync: pushes a trainer's weights into an inference engine.");
    app.require_subcommand(1);
    app.footer("Example:\n  tandem-sync bench --shapes SmolLM2-135M --mesh 2,1 --bucket-mib 64");
    sync::BenchOptions options;
    std::string source = "bfloat16";
    std::string target = "bfloat16";
    bool json = false;
    CLI::App* bench =
        app.add_subcommand("bench", "measures weight-update latency on this machine, with synthetic weights");
    bench->footer("Example:\n  tandem-sync bench --shapes Qwen3-0.6B --mesh 2,2 --iterations 10 --json");
    CLI::App* engine_side = app.add_subcommand("bench-engine", "")->group("");
    CLI::App* rank_side = app.add_subcommand("bench-rank", "")->group("");
    for (CLI::App* sub : {bench, engine_side, rank_side}) add_options(*sub, options, source, target, json);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    // A child never outlives whoever started it.
    if (*engine_side) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_up_logging(*engine_side ? "engine" : "tandem-sync");
    try {
        try {
            options.source_dtype = dtype_from_name(source);
            options.engine_dtype = dtype_from_name(target);
        } catch (const InvalidArgument& error) {
            throw ConfigError("command line", "--source-dtype, --engine-dtype", error.what());
        }
        if (*engine_side) return run_engine_side(options);
        if (*rank_side) return run_rank(options);
        return run_bench(options, json);
    } catch (const std::exception& error) {
        std::cerr << "tandem-sync: " << error.what() << "\n";
        return exit_code(to_status(error).code);
    }
}
