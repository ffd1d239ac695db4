// The test binary is also its own rank: "--rank-body NAME" is a check of the contract or one of the bodies
// here. A rank writes what it says, and the error that ends it, into its file of TANDEM_TEST_FOLDER.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/log.h"
#include "tests/contract/comm/checks.h"
#include "tests/multiproc/network/push_bodies.h"
#include "tests/support/run_tests.h"

namespace tandem::comm {
namespace {

std::string folder() {
    return std::getenv("TANDEM_TEST_FOLDER");
}

void tell(const std::string& text) {
    std::FILE* file = std::fopen((folder() + "/rank" + std::getenv("RANK")).c_str(), "a");
    std::fprintf(file, "%s\n", text.c_str());
    std::fclose(file);
}

// Large enough that the cut falls into the middle of one.
void reduces(const contract::World& world, int times) {
    std::vector<float> values(3'000'000, 1.0F);
    const Span span{reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
    for (int i = 0; i < times; ++i) world->all_reduce(span, DType::float32, ReduceOp::max);
}

void run_body(const std::string& body) {
    const auto world = connect_from_environment(Deadline::after_ms(20'000));
    if (body == "says_where_it_listens") return world->barrier();
    if (body != "reduces_for_ever" && body != "reduces_after_the_cut")
        return contract::check_named(body).run(world);
    world->barrier();
    world->set_timeout(std::chrono::milliseconds(2000));
    if (body == "reduces_after_the_cut") {
        tell("running");
        while (!std::filesystem::exists(folder() + "/cut"))
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else {
        reduces(world, 2);
        tell("running");
    }
    reduces(world, 1'000'000);
}

int run_rank(const std::string& body) {
    // What is logged goes to the rank's file too.
    if (std::freopen((folder() + "/rank" + std::getenv("RANK")).c_str(), "a", stderr) == nullptr) return 3;
    set_up_logging("rank");
    try {
        run_body(body);
        return 0;
    } catch (const ConfigError& error) {
        tell(error.what());
        return 2;
    } catch (const std::exception& error) {
        tell(error.what());
        return 1;
    }
}

}  // namespace
}  // namespace tandem::comm

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--rank-body") == 0) return tandem::comm::run_rank(argv[2]);
    if (argc == 5 && std::strcmp(argv[1], "--push-body") == 0)
        return tandem::engine::run_push_body(argv[2], argv[3], argv[4]);
    return tandem::test::run_tests(argc, argv);
}
