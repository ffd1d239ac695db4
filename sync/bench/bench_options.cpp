#include "sync/bench/bench_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <limits>

#include "common/device/devices.h"
#include "common/error.h"
#include "common/ops/half.h"
#include "sync/bench/quantized_engine.h"
#include "sync/bench/shapes.h"
#include "sync/codec/scales.h"
#include "sync/plan/engine_layout.h"
#include "sync/session/modes.h"

namespace tandem::sync {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

double available_gibibytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("MemAvailable:")) return std::stod(line.substr(13)) / (1024.0 * 1024.0);
    }
    return std::numeric_limits<double>::infinity();
}

const char* option_of(Refusal::About choice) {
    switch (choice) {
        case Refusal::About::transport:
            return "--transport";
        case Refusal::About::device:
            return "--device";
        case Refusal::About::dtype:
            return "--engine-dtype";
        default:
            return "--mode";
    }
}

}  // namespace

// --- flags

void add_options(CLI::App& app, BenchOptions& options) {
    std::string names;
    for (const auto& name : shape_names()) names.append(names.empty() ? "" : ", ").append(name);
    const auto option = [&app](const char* name, auto& value, const std::string& help) {
        return app.add_option(name, value, help)->capture_default_str();
    };
    option("--shapes", options.shapes, "model whose shapes to push: a JSON file, or " + names);
    add_mesh(app, options.mesh,
             "trainer ranks as dp,cp, or by name: dp=2,tp=2 (dp, dp_replicate, cp, tp, pp; parameters lie as "
             "FSDP, "
             "tensor parallelism and pipeline stages hold them)");
    app.add_flag("--shard-all", options.shard_all, "shard over cp as well; default: replicate over cp");
    option("--mode", options.mode, mode_names());
    option("--engine-tp", options.engine_tp, "tensor-parallel engine ranks, each a process");
    option("--device", options.device, "cpu, cuda or cuda:1: where trainer and engine hold their weights");
    option("--transport", options.transport,
           "auto, shm or tcp (of the CPU), cuda_ipc (of GPUs) or nccl (of GPUs, one for each engine rank)");
    option("--data-listen", options.data_listen,
           "where bench-engine listens with --transport tcp: HOST:PORT");
    app.add_option(
        "--engine", options.engines,
        "an engine rank that runs already (tandem-sync bench-engine with the same options prints its "
        "address); may be repeated");
    option("--changed", options.changed, "part of the elements that changes between two syncs, 0 to 1");
    option("--bucket-mib", options.bucket_mib, "bucket size; 0: chosen for this machine");
    option("--depth", options.depth, "slots of staging, 1 only for gather; 0: chosen");
    option("--iterations", options.iterations, "timed syncs");
    option("--source-dtype", options.source_dtype, "float32, bfloat16 or float16, as the trainer holds it");
    option("--engine-dtype", options.engine_dtype,
           "float32, bfloat16, float16, or fp8 or int8: linear layers quantised, the rest bfloat16");
    option("--link-gbps", options.link_gbps,
           "GB/s to each engine rank at most: over TCP, paced by the kernel; 0: unpaced");
    app.add_flag("--sweep", options.sweep,
                 "also bucket sizes from 1 to 128 MiB at depths up to 4, past the cache and through it, "
                 "beside what is chosen");
    app.add_flag("--calibrate", options.calibrate, "measure the costs again that bucket sizes are chosen by");
    app.add_option("--trace", options.trace, "a Chrome trace of every rank, to this file");
}

void add_mesh(CLI::App& app, TrainerMesh& mesh, const std::string& help) {
    const auto parse = [&mesh](const std::string& text) {
        try {
            mesh = TrainerMesh::parse(text);
        } catch (const BadInput& error) {
            throw CLI::ValidationError("--mesh", error.what());
        }
    };
    app.add_option_function<std::string>("--mesh", parse, help)->default_str(mesh.text());
}

// --- what follows from them

Device BenchOptions::where() const {
    return device_from_name(device);
}

Device BenchOptions::engine_device(int rank) const {
    Device device = where();
    if (transport == "nccl") device.index += 1 + rank;
    return device;
}

int BenchOptions::world_size() const {
    return static_cast<int>(mesh.ranks());
}

// --- what is refused, and the memory that it takes

void BenchOptions::validate() const {
    const auto check = [](bool ok, const char* option, const std::string& message) {
        if (!ok) throw ConfigError("command line", option, message);
    };
    const auto accepted = [](const char* option, const auto& work) {
        try {
            work();
        } catch (const InvalidArgument& error) {
            throw ConfigError("command line", option, error.what());
        }
    };
    accepted("--device", [&] { require_device(device_from_name(device)); });
    accepted("--mode", [&] { mode_from_name(mode); });
    accepted("--engine-dtype", [&] { dtype_from_name(engine_dtype); });
    const Mode kind = mode_from_name(mode);
    const bool on_gpu = where().type == DeviceType::cuda;
    const bool quantized = is_quantized(dtype_from_name(engine_dtype));
    const bool nccl = transport == "nccl";
    const bool known =
        transport == "auto" || transport == "shm" || transport == "cuda_ipc" || transport == "tcp" || nccl;
    check(known, "--transport",
          fmt::format("no transport '{}'; there are auto, shm, cuda_ipc, nccl, tcp", transport));
    check(link_gbps >= 0 && link_gbps <= 10'000, "--link-gbps", "must be from 0 to 10000");
    check(link_gbps == 0 || over_tcp(), "--link-gbps",
          fmt::format("{} is not paced, TCP is: --transport tcp, or none", transport));
    if (const auto refused = refusal(
            kind, {.weights = where(), .transport = over_tcp() ? "tcp" : transport, .quantised = quantized}))
        throw ConfigError("command line", option_of(refused->about), refused->sentence());
    const auto devices = available_devices();
    const auto gpus = std::count_if(devices.begin(), devices.end(),
                                    [](Device one) { return one.type == DeviceType::cuda; });
    check(
        !nccl || engine_device(engine_tp - 1).index < gpus, "--transport",
        fmt::format("NCCL refuses two ranks on one GPU: {} and each of the {} engine ranks need one of their "
                    "own, and {} is there; use cuda_ipc, which shares a GPU",
                    device, engine_tp, gpus));
    const std::vector<int>& sizes = mesh.sizes;
    check(!sizes.empty() && (mesh.named() || sizes.size() <= 2) &&
              std::all_of(sizes.begin(), sizes.end(), [](int n) { return n >= 1; }) && mesh.ranks() <= 64,
          "--mesh", "one or two positive sizes, dp,cp, or axes by name, dp=2,tp=2; at most 64 ranks");
    check(!mesh.named() || !shard_all, "--shard-all", "is of a mesh without names");
    check(engine_tp >= 1 && engine_tp <= 64, "--engine-tp", "must be from 1 to 64");
    check(engines.empty() || engines.size() == static_cast<std::size_t>(engine_tp), "--engine",
          fmt::format("{} addresses of {} engine ranks", engines.size(), engine_tp));
    check(changed >= 0 && changed <= 1, "--changed", "must be from 0 to 1");
    check(bucket_mib >= 0 && bucket_mib <= 65536, "--bucket-mib", "must be from 0 to 65536");
    const int least_depth = traits(kind).least_depth;
    check(depth == 0 || (depth >= least_depth && depth <= 64), "--depth",
          fmt::format("must be 0 or from {} to 64", least_depth));
    check(iterations >= 1 && iterations <= 100'000, "--iterations", "must be from 1 to 100000");
    check(!sweep || traits(kind).staged, "--sweep",
          fmt::format("modes {} have buckets", mode_names(" and ", &ModeTraits::staged)));
    accepted("--source-dtype", [&] { dtype_from_name(source_dtype); });
    const auto floating = [](DType dtype) { return ops::copy_casts(DType::float32, dtype); };
    check(floating(dtype_from_name(source_dtype)), "--source-dtype", "must be float32, bfloat16 or float16");
    check(floating(dtype_from_name(engine_dtype)) || quantized, "--engine-dtype",
          "must be float32, bfloat16, float16, fp8 or int8");
    ModelShapes model;
    accepted("--shapes", [&] { model = model_shapes(shapes); });
    accepted("--mesh", [&] { mesh.check_fits(model); });
    std::size_t held = 0;  // by all engine ranks
    accepted("--engine-tp", [&] {
        for (int rank = 0; rank < engine_tp; ++rank) {
            for (const engine::TensorInfo& tensor : engine_tensors(rank))
                held += engine::tensor_bytes(tensor);
        }
    });
    const auto copies = static_cast<std::size_t>(traits(kind).arena_copies);
    const double needed = static_cast<double>(held_bytes() + held * (1 + copies)) / kGibibyte;
    // On a GPU the host holds the trainer's weights a second time: they are made there.
    const double free =
        on_gpu ? static_cast<double>(device_info(where()).total_bytes) / kGibibyte : available_gibibytes();
    check(needed <= free, "--shapes",
          fmt::format(
              "weights of {:.1f} GiB on the trainer's and the engine's side together; {} has {:.1f} GiB of "
              "memory",
              needed, on_gpu ? to_string(where()) : "this machine", free));
}

std::size_t BenchOptions::held_bytes() const {
    const std::size_t base =
        traits(mode_from_name(mode)).keeps_base ? dtype_size(dtype_from_name(engine_dtype)) : 0;
    const std::vector<model::ParameterSpec> model = model_tensors(shapes);
    const Holdings held = mesh.named() ? all_holdings(mesh, model) : holdings(mesh.abstract());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
        std::size_t copies = 1;
        const auto& [all, placements] = held.of(i);
        for (int axis = 0; axis < all.ndim(); ++axis) {
            if (placements[static_cast<std::size_t>(axis)].is_replicate())
                copies *= static_cast<std::size_t>(all.size(axis));
        }
        const auto elements = static_cast<std::size_t>(numel(model[i].shape));
        bytes += elements * (copies * dtype_size(dtype_from_name(source_dtype)) + base);
    }
    return bytes;
}

Holdings BenchOptions::holdings(const DeviceMesh& all) const {
    const std::vector<model::ParameterSpec> model = model_tensors(shapes);
    if (mesh.named()) return holdings_of(all, model);
    Placements placements{Shard(0), shard_all ? Shard(0) : Replicate()};
    placements.resize(mesh.sizes.size());
    return {{{all, placements}}, std::vector<int>(model.size(), 0)};
}

std::vector<engine::TensorInfo> BenchOptions::engine_tensors(int rank) const {
    const DType wanted = dtype_from_name(engine_dtype);
    const DType dtype = is_quantized(wanted) ? DType::bfloat16 : wanted;  // of what is not quantised
    const std::vector<model::ParameterSpec> model = model_tensors(shapes);
    std::vector<engine::TensorInfo> tensors;
    if (engine_tp > 1) {
        tensors = engine_layout(model, {engine_tp, 1, true}, dtype)[static_cast<std::size_t>(rank)];
    } else {
        for (const model::ParameterSpec& tensor : model)
            tensors.push_back({tensor.name, tensor.shape, dtype, {}});
    }
    return wanted == dtype ? tensors : quantize_linear(tensors, model, wanted);
}

}  // namespace tandem::sync
