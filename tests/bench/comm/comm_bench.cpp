// Latency and bandwidth of the ipc communicator between real processes: this program starts itself as the
// ranks.
//   comm_bench            all tables
//   comm_bench latency|gather|reduce RANKS     one of them
// The first repetition of everything is checked. Medians over the repetitions, taken on rank 0.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/launch.h"
#include "common/error.h"

namespace {

using namespace tandem;
using comm::Communicator;
using World = std::shared_ptr<Communicator>;

using Call = std::function<void()>;

// Median time of each call in microseconds. Calls take turns, so that all see the same load of the machine;
// the ranks start each one together.
std::vector<double> median_us(const World& world, int repetitions, const std::vector<Call>& calls) {
    std::vector<std::vector<double>> times(calls.size());
    for (int i = 0; i < repetitions; ++i) {
        for (std::size_t c = 0; c < calls.size(); ++c) {
            world->barrier();
            const auto start = std::chrono::steady_clock::now();
            calls[c]();
            const auto took = std::chrono::steady_clock::now() - start;
            times[c].push_back(std::chrono::duration<double, std::micro>(took).count());
        }
    }
    std::vector<double> medians;
    for (auto& list : times) {
        std::nth_element(list.begin(), list.begin() + repetitions / 2, list.end());
        medians.push_back(list[static_cast<std::size_t>(repetitions / 2)]);
    }
    return medians;
}

void latency(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    const Buffer part(1024, "bench", world->memory());
    const Buffer whole(1024 * n, "bench", world->memory());
    std::memset(part.data(), world->rank() + 1, part.bytes());
    world->all_gather(part.span(), whole.span());
    require(whole.data()[1024 * n - 1] == static_cast<std::byte>(n), "all_gather is wrong");
    Stream stream = Stream::make_inline();
    const int next = (world->rank() + 1) % world->size();
    const int previous = (world->rank() + world->size() - 1) % world->size();
    const comm::P2POp ring[] = {{comm::P2POp::Kind::send, next, part.span()},
                                {comm::P2POp::Kind::recv, previous, whole.span().subspan(0, 1024)}};
    const auto us = median_us(
        world, 2000,
        {[&] { world->barrier(); }, [&] { world->all_gather(part.span(), whole.span()); },
         [&] { world->all_reduce(part.span(), DType::float32); }, [&] { world->p2p(ring, stream); }});
    if (world->rank() != 0) return;
    std::printf("%d ranks, 1 KiB, us: barrier %.1f  all_gather %.1f  all_reduce %.1f  ring send+recv %.1f\n",
                world->size(), us[0], us[1], us[2], us[3]);
}

void gather(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    constexpr std::size_t kBytes = std::size_t{32} << 20;
    const Buffer part(kBytes, "bench", world->memory());
    const Buffer whole(kBytes * n, "bench", world->memory());
    const Buffer outside(kBytes, "bench");
    const Buffer sources(kBytes * n, "bench", world->memory());
    std::memset(sources.data(), 1, sources.bytes());
    std::memset(part.data(), world->rank() + 1, kBytes);
    std::memset(outside.data(), world->rank() + 1, kBytes);
    std::memset(whole.data(), 0, whole.bytes());
    world->all_gather(part.span(), whole.span());
    for (std::size_t r = 0; r < n; ++r) {
        require(whole.data()[(r + 1) * kBytes - 1] == static_cast<std::byte>(r + 1), "all_gather is wrong");
    }
    // The yardstick: each rank copies as much as the collective makes it copy, from as many places, and all
    // wait.
    const auto us =
        median_us(world, 15,
                  {[&] {
                       for (std::size_t r = 0; r < n; ++r) {
                           std::memcpy(whole.data() + r * kBytes, sources.data() + r * kBytes, kBytes);
                       }
                       world->barrier();
                   },
                   [&] { world->all_gather(part.span(), whole.span()); },
                   [&] { world->all_gather(outside.span(), whole.span()); }});
    if (world->rank() != 0) return;
    const auto rate = [&](double us) { return static_cast<double>(kBytes * n) / us / 1000; };
    std::printf(
        "%d ranks, all_gather of 32 MiB a rank, GB/s copied by each rank: memcpy %.2f  all_gather %.2f "
        "(%.2f of memcpy)  staged %.2f\n",
        world->size(), rate(us[0]), rate(us[1]), us[0] / us[1], rate(us[2]));
}

void reduce(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    constexpr std::size_t kBytes = std::size_t{32} << 20;
    const Buffer all(kBytes * n, "bench", world->memory());
    const Buffer piece(kBytes, "bench", world->memory());
    std::fill_n(reinterpret_cast<float*>(all.data()), all.bytes() / 4, 1.0F);
    Stream stream = Stream::make_inline();
    const comm::ReduceScatterItem item{all.span(), piece.span()};
    world->reduce_scatter(std::span(&item, 1), comm::ReduceOp::sum, stream);
    require(reinterpret_cast<const float*>(piece.data())[kBytes / 4 - 1] == static_cast<float>(n),
            "reduce_scatter is wrong");
    const auto us =
        median_us(world, 15,
                  {[&] {
                       for (std::size_t r = 0; r < n; ++r) {
                           std::memcpy(piece.data(), all.data() + r * kBytes, kBytes);
                       }
                       world->barrier();
                   },
                   [&] { world->reduce_scatter(std::span(&item, 1), comm::ReduceOp::sum, stream); },
                   [&] { world->all_reduce(piece.span(), DType::float32); }});
    if (world->rank() != 0) return;
    const auto rate = [](std::size_t bytes, double us) { return static_cast<double>(bytes) / us / 1000; };
    std::printf(
        "%d ranks, 32 MiB of fp32 a rank, GB/s read by each rank: memcpy %.2f  reduce_scatter %.2f "
        "(%.2f of memcpy); all_reduce of 32 MiB %.1f ms\n",
        world->size(), rate(kBytes * n, us[0]), rate(kBytes * n, us[1]), us[0] / us[1], us[2] / 1000);
}

int run_ranks(const std::string& what, int ranks) {
    comm::LaunchOptions options;
    options.world_size = ranks;
    options.command = {"/proc/self/exe", what};
    const comm::LaunchResult result = comm::RankProcesses(options).wait();
    if (!result.message.empty()) std::fprintf(stderr, "%s\n", result.message.c_str());
    return result.exit_code;
}

std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown processor";
}

int run(int argc, char** argv) {
    if (comm::launched_as_rank()) {
        const World world = comm::connect_from_environment(Deadline::after_ms(20'000));
        const std::string what = argc > 1 ? argv[1] : "";
        if (what == "latency") latency(world);
        if (what == "gather") gather(world);
        if (what == "reduce") reduce(world);
        return 0;
    }
    std::printf("%s, %u cores\n", processor().c_str(), std::thread::hardware_concurrency());
    std::fflush(stdout);
    if (argc == 3) return run_ranks(argv[1], std::atoi(argv[2]));
    for (const int ranks : {2, 4}) {
        for (const char* what : {"latency", "gather", "reduce"}) {
            if (const int code = run_ranks(what, ranks); code != 0) return code;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "comm_bench: %s\n", error.what());
        return to_status(error).code == Code::invalid ? 2 : 1;
    }
}
