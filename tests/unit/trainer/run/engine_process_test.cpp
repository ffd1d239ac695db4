// What an engine that a run starts is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "trainer/run/engine_process.h"

namespace tandem::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string read(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

// A shell stands for the engine: it writes down its arguments and its environment, and that it is ready.
TEST(EngineProcess, KnowsItsParentAndNotTheSecret) {
    const std::string folder = ::testing::TempDir() + "engine_process_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder);
    const std::string log = folder + "/log";
    ::setenv("TANDEM_JOB_SECRET", "0123456789abcdef0123456789abcdef", 1);
    ::setenv("TANDEM_TEST_OTHER", "stays", 1);
    {
        const EngineProcess engine(
            {"/bin/sh", "-c", "echo \"$@\"; env; echo http://engine > \"$2\"; exec sleep 60", "engine"}, log,
            Deadline::after_ms(20'000));
        EXPECT_EQ(engine.url(), "http://engine");
    }
    ::unsetenv("TANDEM_JOB_SECRET");
    ::unsetenv("TANDEM_TEST_OTHER");
    const std::string said = read(log);
    std::filesystem::remove_all(folder);
    EXPECT_THAT(said, HasSubstr("--parent-pid " + std::to_string(::getpid())));
    EXPECT_THAT(said, HasSubstr("TANDEM_TEST_OTHER=stays"));
    EXPECT_THAT(said, Not(HasSubstr("SECRET")));
}

}  // namespace
}  // namespace tandem::trainer
