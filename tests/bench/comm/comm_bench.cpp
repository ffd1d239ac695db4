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

// Median time of one call in microseconds; all ranks start each call together.
double median_us(const World& world, int repetitions, const std::function<void()>& call) {
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
        world->barrier();
        const auto start = std::chrono::steady_clock::now();
        call();
        times.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
    return times[static_cast<std::size_t>(repetitions / 2)];
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
    constexpr int kRepetitions = 2000;
    const double barrier = median_us(world, kRepetitions, [&] { world->barrier(); });
    const double gather =
        median_us(world, kRepetitions, [&] { world->all_gather(part.span(), whole.span()); });
    const double reduce =
        median_us(world, kRepetitions, [&] { world->all_reduce(part.span(), DType::float32); });
    const double p2p = median_us(world, kRepetitions, [&] { world->p2p(ring, stream); });
    if (world->rank() != 0) return;
    std::printf("%d ranks, 1 KiB, us: barrier %.1f  all_gather %.1f  all_reduce %.1f  ring send+recv %.1f\n",
                world->size(), barrier, gather, reduce, p2p);
}

// Each rank copies as much as the collective makes it read: the same work without any waiting.
double memcpy_us(const World& world, const Buffer& from, const Buffer& to) {
    const auto n = static_cast<std::size_t>(world->size());
    return median_us(world, 15, [&] {
        for (std::size_t r = 0; r < n; ++r)
            std::memcpy(to.data() + r * from.bytes(), from.data(), from.bytes());
    });
}

void gather(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    constexpr std::size_t kBytes = std::size_t{32} << 20;
    const Buffer part(kBytes, "bench", world->memory());
    const Buffer whole(kBytes * n, "bench", world->memory());
    const Buffer outside(kBytes, "bench");
    std::memset(part.data(), world->rank() + 1, kBytes);
    std::memset(outside.data(), world->rank() + 1, kBytes);
    std::memset(whole.data(), 0, whole.bytes());
    world->all_gather(part.span(), whole.span());
    for (std::size_t r = 0; r < n; ++r) {
        require(whole.data()[(r + 1) * kBytes - 1] == static_cast<std::byte>(r + 1), "all_gather is wrong");
    }
    const double copy = memcpy_us(world, part, whole);
    const double direct = median_us(world, 15, [&] { world->all_gather(part.span(), whole.span()); });
    const double staged = median_us(world, 15, [&] { world->all_gather(outside.span(), whole.span()); });
    if (world->rank() != 0) return;
    const auto rate = [&](double us) { return static_cast<double>(kBytes * n) / us / 1000; };
    std::printf(
        "%d ranks, all_gather of 32 MiB a rank, GB/s copied by each rank: memcpy %.2f  all_gather %.2f "
        "(%.2f of memcpy)  staged %.2f\n",
        world->size(), rate(copy), rate(direct), copy / direct, rate(staged));
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
    const double copy = median_us(world, 15, [&] {
        for (std::size_t r = 0; r < n; ++r) std::memcpy(piece.data(), all.data() + r * kBytes, kBytes);
    });
    const double scatter = median_us(
        world, 15, [&] { world->reduce_scatter(std::span(&item, 1), comm::ReduceOp::sum, stream); });
    const double both = median_us(world, 15, [&] { world->all_reduce(piece.span(), DType::float32); });
    if (world->rank() != 0) return;
    const auto rate = [](std::size_t bytes, double us) { return static_cast<double>(bytes) / us / 1000; };
    std::printf(
        "%d ranks, 32 MiB of fp32 a rank, GB/s read by each rank: memcpy %.2f  reduce_scatter %.2f "
        "(%.2f of memcpy); all_reduce of 32 MiB %.1f ms\n",
        world->size(), rate(kBytes * n, copy), rate(kBytes * n, scatter), copy / scatter, both / 1000);
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
