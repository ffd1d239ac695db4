// `tandem-sync bench` as a user runs it, with the costs that it measures in a folder of the test's.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/multiproc/app/program.h"

namespace tandem::test {

using Words = std::vector<std::string>;

inline Words bench(const std::string& mode, const Words& more = {}, const std::string& shapes = "tiny") {
    Words command{"tandem-sync", "bench", "--shapes", shapes, "--mode", mode};
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

class BenchProgram : public testing::Test {
  protected:
    Words environment() const { return {"TANDEM_CACHE_DIR=" + cache_.path(), "TANDEM_EMULATED_GPUS=3"}; }
    nlohmann::json run(const std::string& mode, Words more, const std::string& shapes = "tiny") const {
        more.insert(more.end(), {"--json", "--iterations", "4"});
        Program program(bench(mode, more, shapes), environment());
        EXPECT_EQ(program.wait(), 0) << program.err();
        const auto result = nlohmann::json::parse(program.out(), nullptr, false);
        EXPECT_TRUE(result.is_object()) << program.out();
        EXPECT_EQ(result.value("verified", false), true) << mode;
        return result;
    }
    Folder cache_;
};

}  // namespace tandem::test
