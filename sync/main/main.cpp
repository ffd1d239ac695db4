// tandem-sync: the weight sync's program. `bench` starts trainer ranks and one engine-side process with a
// real receiver, and measures what an update costs.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "common/comm/launch.h"
#include "common/comm/piped_child.h"
#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/log.h"
#include "common/trace.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "sync/bench/bench.h"
#include "sync/bench/html.h"
#include "sync/bench/plan_report.h"
#include "sync/bench/shapes.h"
#include "sync/bench/sweep_table.h"

namespace {

using namespace tandem;

std::vector<std::string> g_arguments;  // this program's own, for starting itself again

// Weights without an engine around them: what the receiver needs, nothing else.
class BareWeights final : public engine::WeightTarget {
  public:
    BareWeights(const std::vector<engine::TensorInfo>& tensors, Device device) : device_(device) {
        if (device.type == DeviceType::cuda) {
            put_on_gpu(tensors);
            return;
        }
        for (const auto& tensor : tensors) {
            memory_.emplace_back(engine::tensor_bytes(tensor), "engine weights");
            std::fill_n(memory_.back().data(), memory_.back().bytes(), std::byte{0});
            weights_.push_back({tensor, memory_.back().span()});
        }
    }
    Device device() const override { return device_; }
    const std::vector<engine::WeightSlot>& weights() const override { return weights_; }
    std::int64_t version() const override { return version_; }
    void begin_update(std::int64_t) override {}
    void commit_update(std::int64_t version) override { version_ = version; }
    void abort_update(const std::string& reason, bool) override { log_error("update aborted: {}", reason); }
    bool can_alias() const override { return true; }
    void point_weights(const std::vector<Span>&, std::shared_ptr<const void> owner) override {
        owner_ = std::move(owner);  // nobody computes with these weights
    }
    void lose_weights(const std::string&) override {
        owner_.reset();
        version_ = 0;
    }

  private:
    void put_on_gpu(const std::vector<engine::TensorInfo>& tensors) {
        constexpr std::size_t kAlign = 256;
        const auto aligned = [](const engine::TensorInfo& tensor) {
            return (engine::tensor_bytes(tensor) + kAlign - 1) / kAlign * kAlign;
        };
        std::size_t bytes = 0;
        for (const auto& tensor : tensors) bytes += aligned(tensor);
        arena_ = ExportArena::create(device_, std::max<std::size_t>(bytes, 1), "engine weights");
        Stream stream = Stream::make(device_, "engine weights");
        fill_zero(stream, arena_.span());
        stream.synchronize();
        std::size_t at = 0;
        for (const auto& tensor : tensors) {
            weights_.push_back({tensor, arena_.span().subspan(at, engine::tensor_bytes(tensor))});
            at += aligned(tensor);
        }
    }

    const Device device_;
    std::vector<Buffer> memory_;
    ExportArena arena_;  // of a GPU
    std::vector<engine::WeightSlot> weights_;
    std::shared_ptr<const void> owner_;
    std::int64_t version_ = 0;
};

// An engine rank's process: says where its receiver listens, then serves until its standard input ends.
int run_engine_side(const sync::BenchOptions& options, int rank) {
    BareWeights weights(options.engine_tensors(rank), options.engine_device(rank));
    engine::ReceiverOptions receiver_options;
    receiver_options.link_bytes_per_s = options.link_gbps * 1e9;
    const engine::Receiver receiver(weights, receiver_options);
    std::cout << receiver.address() << std::endl;
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
    return 0;
}

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

std::vector<std::string> self_as(const std::string& subcommand) {
    std::vector<std::string> command = g_arguments;  // tandem-sync bench …
    command.at(1) = subcommand;
    return command;
}

int run_rank(const sync::BenchOptions& options) {
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
        sync::Engines engines;
        for (const std::string& address : addresses) engines.push_back(engine::connect(address, deadline));
        return engines;
    };
    const nlohmann::json result = sync::run_bench(world, connect, options);
    if (!result.is_null()) std::ofstream(std::getenv("TANDEM_BENCH_RESULT")) << result.dump();
    return 0;
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) throw Error(fmt::format("cannot write {}", path));
}

// Asked before anything is started, not after minutes of measuring.
void require_writable(const char* option, const std::string& file) {
    if (file.empty()) return;
    const auto refuse = [&](const char* why) {
        throw ConfigError("command line", option, fmt::format("{} cannot be written: {}", file, why));
    };
    if (std::filesystem::is_directory(file)) refuse(std::strerror(EISDIR));
    const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
    if (::access(folder.c_str(), W_OK) != 0) refuse(std::strerror(errno));
}

struct Output {
    bool json = false;
    std::string html;  // a file
};

int run_bench(const sync::BenchOptions& options, const Output& output) {
    options.validate();
    require_writable("--trace", options.trace);
    require_writable("--html", output.html);
    std::vector<std::unique_ptr<comm::PipedChild>> engines;
    std::string addresses;
    for (int rank = 0; rank < options.engine_tp; ++rank) {
        std::vector<std::string> command = self_as("bench-engine");
        command.insert(command.end(), {"--engine-rank", std::to_string(rank)});
        engines.push_back(std::make_unique<comm::PipedChild>(std::move(command)));
    }
    for (auto& engine : engines) {
        const std::string address = engine->read_line();
        if (address.empty()) throw Error("an engine-side process did not start");
        addresses += address + " ";
    }
    const ResultFile result_file;
    comm::LaunchOptions launch;
    launch.world_size = options.world_size();
    launch.command = self_as("bench-rank");
    launch.command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
    launch.environment = {"TANDEM_BENCH_ENGINES=" + addresses, "TANDEM_BENCH_RESULT=" + result_file.path()};
    comm::RankProcesses ranks(launch);
    const comm::LaunchResult end = ranks.wait([&] {
        for (auto& engine : engines) {
            if (!engine->running()) return std::string("an engine-side process ended");
        }
        return std::string();
    });
    if (end.exit_code != 0) {
        std::cerr << "tandem-sync bench: " << end.message << "\n";
        return 1;
    }
    const nlohmann::json result = nlohmann::json::parse(std::ifstream(result_file.path()));
    if (!output.html.empty()) write_file(output.html, sync::bench_html(result));
    if (output.json) {
        std::cout << result.dump(2) << "\n";
    } else {
        std::cout << sync::bench_table(result) << sync::sweep_table(result);
    }
    if (result.at("verified").get<bool>()) return 0;
    std::cerr << "tandem-sync bench: the engine does not hold what the trainer holds\n";
    return 1;
}

void add_options(CLI::App& app, sync::BenchOptions& options, Output& output) {
    std::string names;
    for (const auto& name : sync::shape_names()) names.append(names.empty() ? "" : ", ").append(name);
    const auto option = [&app](const char* name, auto& value, const std::string& help) {
        return app.add_option(name, value, help)->capture_default_str();
    };
    option("--shapes", options.shapes, "model whose shapes to push: a JSON file, or " + names);
    option("--mesh", options.mesh, "trainer ranks as dp,cp")->delimiter(',');
    app.add_flag("--shard-all", options.shard_all, "shard over cp as well; default: replicate over cp");
    option("--mode", options.mode, "gather, direct, alias or delta");
    option("--engine-tp", options.engine_tp, "tensor-parallel engine ranks, each a process");
    option("--device", options.device, "cpu, cuda or cuda:1: where trainer and engine hold their weights");
    option("--transport", options.transport,
           "auto, shm (of the CPU), cuda_ipc (of GPUs) or nccl (of GPUs, one for each engine rank)");
    option("--changed", options.changed, "part of the elements that changes between two syncs, 0 to 1");
    option("--bucket-mib", options.bucket_mib, "bucket size; 0: chosen for this machine");
    option("--depth", options.depth, "buckets in flight; 0: chosen");
    option("--iterations", options.iterations, "timed syncs");
    option("--source-dtype", options.source_dtype, "float32 or bfloat16, as the trainer holds it");
    option("--engine-dtype", options.engine_dtype,
           "float32, bfloat16, or fp8 or int8: linear layers quantised, the rest bfloat16");
    option("--link-gbps", options.link_gbps, "GB/s of the link between trainer and engine; 0: memory");
    app.add_flag("--sweep", options.sweep, "also bucket sizes from 1 to 128 MiB at depths 2 to 4");
    app.add_flag("--calibrate", options.calibrate, "measure anew what bucket sizes are chosen by");
    app.add_option("--trace", options.trace, "a Chrome trace of every rank, to this file");
    app.add_option("--html", output.html, "a page with charts, to this file");
    app.add_flag("--json", output.json, "one JSON object instead of a table");
}

struct PlanArguments {
    sync::PlanReportOptions options;
    std::string source_dtype = "bfloat16";
    std::string engine_dtype = "bfloat16";
    bool json = false;
};

void add_plan_options(CLI::App& app, PlanArguments& plan) {
    const auto option = [&app](const char* name, auto& value, const std::string& help) {
        return app.add_option(name, value, help)->capture_default_str();
    };
    option("--shapes", plan.options.shapes, "model: a JSON file or a name, as for bench");
    option("--mesh", plan.options.mesh, "sizes of the trainer's mesh")->delimiter(',');
    option("--placements", plan.options.placements,
           "one for each axis, like S(0),R; default: sharded along dim 0 over the last axis");
    option("--expert-mesh", plan.options.expert_mesh, "ep,fsdp: each expert lies on fsdp ranks")
        ->delimiter(',');
    option("--engine-tp", plan.options.engine.tp, "tensor-parallel engine ranks");
    option("--engine-ep", plan.options.engine.ep, "expert-parallel engine ranks");
    app.add_flag("!--unfused", plan.options.engine.fused, "q, k, v, gate and up as tensors of their own");
    option("--source-dtype", plan.source_dtype, "as the trainer holds it");
    option("--engine-dtype", plan.engine_dtype, "as the engine holds it");
    app.add_flag("--json", plan.json, "one JSON object instead of a table");
}

DType dtype_option(const char* option, const std::string& name) {
    try {
        return dtype_from_name(name);
    } catch (const InvalidArgument& error) {
        throw ConfigError("command line", option, error.what());
    }
}

int run_plan(PlanArguments& plan) {
    plan.options.source_dtype = dtype_option("--source-dtype", plan.source_dtype);
    plan.options.engine_dtype = dtype_option("--engine-dtype", plan.engine_dtype);
    plan.options.validate();
    const nlohmann::json report = sync::plan_report(plan.options);
    std::cout << (plan.json ? report.dump(2) + "\n" : sync::plan_table(report));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    g_arguments.assign(argv, argv + argc);
    CLI::App app("tandem-sync: pushes a trainer's weights into an inference engine.");
    app.require_subcommand(1);
    app.footer("Example:\n  tandem-sync bench --shapes Qwen3-0.6B --mesh 2,1 --mode direct");
    sync::BenchOptions options;
    Output output;
    int engine_rank = 0;
    CLI::App* bench =
        app.add_subcommand("bench", "measures weight-update latency on this machine, with synthetic weights");
    bench->footer("Example:\n  tandem-sync bench --shapes Qwen3-0.6B --mesh 2,2 --iterations 10 --json");
    PlanArguments plan_arguments;
    CLI::App* plan =
        app.add_subcommand("plan", "which bytes would travel from a trainer's layout to an engine's");
    plan->footer(
        "Example:\n  tandem-sync plan --shapes examples/shapes/moe-1t-61x384.json --mesh 256 "
        "--engine-tp 8 --engine-ep 128");
    add_plan_options(*plan, plan_arguments);
    CLI::App* engine_side = app.add_subcommand("bench-engine", "")->group("");
    CLI::App* rank_side = app.add_subcommand("bench-rank", "")->group("");
    for (CLI::App* sub : {bench, engine_side, rank_side}) add_options(*sub, options, output);
    engine_side->add_option("--engine-rank", engine_rank);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    // A child never outlives whoever started it.
    if (*engine_side) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_up_logging(*engine_side ? "engine" : "tandem-sync");
    try {
        if (*engine_side) return run_engine_side(options, engine_rank);
        if (*rank_side) return run_rank(options);
        if (*plan) return run_plan(plan_arguments);
        return run_bench(options, output);
    } catch (const std::exception& error) {
        std::cerr << "tandem-sync: " << error.what() << "\n";
        return exit_code(to_status(error).code);
    }
}
