#include "tests/multiproc/comm/bodies.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "common/error.h"
#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/on_gpu.h"

namespace tandem::comm {
namespace {

using contract::World;

constexpr const char* kTold = "TANDEM_TEST_TOLD";  // file that ranks append a line to

void tell(const std::string& line) {
    std::FILE* file = std::fopen(std::getenv(kTold), "a");
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
}

void collectives_for_ever(const World& world) {
    std::int64_t value = 1;
    for (;;) world->all_reduce({reinterpret_cast<std::byte*>(&value), 8}, DType::int64, ReduceOp::max);
}

// Rank 2 is killed in the middle of collectives; the others write down what they were told.
void killed_in_the_middle(const World& world) {
    if (world->rank() == 2) {
        std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            ::kill(::getpid(), SIGKILL);
        }).detach();
    }
    try {
        collectives_for_ever(world);
    } catch (const TransportError& error) {
        tell(error.what());
        throw;
    }
}

void exits_with_7(const World& world) {
    world->barrier();
    if (world->rank() == 1) std::exit(7);
    collectives_for_ever(world);
}

// Rank 1 fails; rank 0 neither looks at the communicator nor minds SIGTERM.
void deaf_to_sigterm(const World& world) {
    if (world->rank() == 0) ::signal(SIGTERM, SIG_IGN);
    world->barrier();
    if (world->rank() == 1) std::exit(3);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Every rank starts a process of its own that would live on.
void leaves_a_child(const World& world) {
    if (::fork() == 0) {
        for (;;) ::sleep(10);
    }
    world->barrier();
}

void works_for_ever(const World& world) {
    world->barrier();
    tell("running");
    collectives_for_ever(world);
}

void late_rank(const World& world) {
    world->set_timeout(std::chrono::milliseconds(500));
    world->barrier();
    if (world->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
    world->barrier();
}

// Starts ranks of its own, then gets killed: nothing may stay.
void launcher_of_its_own(const World&) {
    RankProcesses ranks(self_launch(2, "works_for_ever"));
    ranks.wait();
}

// Rank 1 returns while the others still need it.
void leaves_early(const World& world) {
    world->barrier();
    if (world->rank() != 1) world->barrier();
}

void second_connection(const World&) {
    connect_from_environment(Deadline::after_ms(1000));
}

const std::map<std::string, void (*)(const World&)>& bodies() {
    static const std::map<std::string, void (*)(const World&)> map = {
        {"killed_in_the_middle", killed_in_the_middle},
        {"exits_with_7", exits_with_7},
        {"deaf_to_sigterm", deaf_to_sigterm},
        {"leaves_a_child", leaves_a_child},
        {"works_for_ever", works_for_ever},
        {"late_rank", late_rank},
        {"leaves_early", leaves_early},
        {"second_connection", second_connection},
        {"launcher_of_its_own", launcher_of_its_own}};
    return map;
}

}  // namespace

int run_body(const std::string& name) {
    const World world = connect_from_environment(Deadline::after_ms(20'000));
    // "gpu:CHECK": the check with all its data on the first GPU, which all ranks share.
    if (name.rfind("gpu:", 0) == 0) {
        const Device gpu{DeviceType::cuda, 0};
        const Stream compute = Stream::make_compute(gpu);
        contract::check_named(name.substr(4)).run(contract::on_gpu(world, gpu));
        return 0;
    }
    const auto found = bodies().find(name);
    if (found != bodies().end()) {
        found->second(world);
    } else {
        contract::check_named(name).run(world);
    }
    return 0;
}

LaunchOptions self_launch(int world_size, const std::string& body) {
    LaunchOptions options;
    options.world_size = world_size;
    options.command = {"/proc/self/exe", "--rank-body", body};
    options.grace = std::chrono::milliseconds(1500);
    return options;
}

}  // namespace tandem::comm
