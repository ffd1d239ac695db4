// Time and memory of checkpoints: a Hugging Face directory read by rows and written, a training checkpoint
// written, verified and read, over rank processes; beside what the disk and the memory of the same run give.
// Each figure is the slowest rank's; memory is what a rank's peak grew by meanwhile.
//   checkpoint_bench --model DIR --out DIR [--ranks 2]
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/comm/launch.h"
#include "common/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/training.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

std::size_t status_bytes(const std::string& key) {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) << 10;
    }
    return 0;
}

void reset_peak() {
    std::ofstream("/proc/self/clear_refs") << "5";
}

// body() on every rank at once; rank 0 prints the slowest rank's time and the largest growth.
template <typename Body>
void measure(const char* name, double bytes, comm::Communicator& world, const Body& body) {
    world.barrier();
    reset_peak();
    const std::size_t before = status_bytes("VmRSS");
    const auto start = std::chrono::steady_clock::now();
    body();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto growth = static_cast<double>(status_bytes("VmHWM")) - static_cast<double>(before);
    std::array<float, 2> worst{static_cast<float>(seconds), static_cast<float>(growth / (1 << 20))};
    world.all_reduce({reinterpret_cast<std::byte*>(worst.data()), sizeof(worst)}, DType::float32,
                     comm::ReduceOp::max);
    if (world.rank() == 0) {
        fmt::print("{:42} {:7.0f} ms  {:6.2f} GB/s  +{:.0f} MiB a rank\n", name, worst[0] * 1e3,
                   bytes / static_cast<double>(worst[0]) / 1e9, worst[1]);
    }
}

void run_rank(const std::string& model_directory, const std::string& out) {
    const auto world = comm::connect_from_environment(Deadline::after_ms(60'000));
    const auto mesh = DeviceMesh::create(world, {world->size(), 1}, {"dp", "cp"});
    const model::ModelConfig config = model::read_model_config(model_directory);
    Policy policy(mesh, config, {});
    const auto numel = static_cast<double>(config.parameter_count());
    if (world->rank() == 0) {
        fmt::print("{} parameters over {} ranks; a rank holds {:.0f} MiB of weights and moments\n",
                   config.parameter_count(), world->size(), numel * 12 / world->size() / (1 << 20));
    }
    const double stored = numel * static_cast<double>(dtype_size(config.torch_dtype));
    measure("read the model, own rows to fp32", stored, *world,
            [&] { load_checkpoint(policy, model_directory); });
    measure("write a Hugging Face directory, fp32", numel * 4, *world, [&] {
        save_checkpoint(policy, *world, out + "/fp32",
                        {DType::float32, std::size_t{5} << 30, model_directory});
    });
    measure("write a Hugging Face directory, bf16", numel * 2, *world, [&] {
        save_checkpoint(policy, *world, out + "/bf16",
                        {DType::bfloat16, std::size_t{5} << 30, model_directory});
    });
    TrainingCheckpoint checkpoint;
    checkpoint.folder = out + "/checkpoints";
    measure("write a training checkpoint", numel * 12, *world,
            [&] { write_training_checkpoint(policy.training_state(), *world, checkpoint); });
    world->barrier();
    const std::string directory = checkpoint.folder + "/step-0";
    measure("verify it (rank 0)", numel * 12, *world, [&] {
        if (world->rank() == 0) verify(read_manifest(directory), directory);
    });
    measure("read it", numel * 12, *world,
            [&] { read_training_checkpoint(directory, policy.training_state()); });
    const Tensor weights =
        Tensor::zeros({static_cast<std::int64_t>(numel) * 3 / world->size()}, DType::float32, "bench");
    const Tensor copy = weights.clone("bench");
    measure("the disk: as many bytes, pwrite + fsync", numel * 12, *world, [&] {
        OutputFile file(fmt::format("{}/raw{}", out, world->rank()), OutputFile::Open::create);
        file.write_at(0, weights.span());
        file.sync();
    });
    measure("the memory: as many bytes, memcpy", numel * 12, *world,
            [&] { std::memcpy(copy.raw(), weights.raw(), weights.bytes()); });
}

int run(int argc, char** argv) {
    std::string model, out;
    int ranks = 2;
    CLI::App app("Time and memory of checkpoints", "checkpoint_bench");
    app.add_option("--model", model, "Hugging Face directory")->required();
    app.add_option("--out", out, "Folder for what is written; it is removed at the end")->required();
    app.add_option("--ranks", ranks, "Processes that the model is sharded over")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    if (comm::launched_as_rank()) {
        run_rank(model, out);
        return 0;
    }
    fs::create_directories(out + "/checkpoints");
    comm::LaunchOptions launch;
    launch.world_size = ranks;
    launch.command = {fs::read_symlink("/proc/self/exe").string(), "--model", model, "--out", out};
    const comm::LaunchResult result = comm::RankProcesses(launch).wait();
    if (result.exit_code != 0) fmt::print(stderr, "checkpoint_bench: {}\n", result.message);
    fs::remove_all(out);
    return result.exit_code;
}

}  // namespace
}  // namespace tandem::trainer

int main(int argc, char** argv) {
    try {
        return tandem::trainer::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
        return 1;
    }
}
