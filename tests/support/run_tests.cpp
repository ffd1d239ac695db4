#include "tests/support/run_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace tandem::test {

namespace {

constexpr const char* kOf = "--of=";

// Takes --of out of the arguments.
std::vector<std::string> sources_asked_for(int& argc, char** argv) {
    std::vector<std::string> sources;
    int kept = 0;
    for (int i = 0; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.rfind(kOf, 0) != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        std::istringstream list(argument.substr(std::string(kOf).size()));
        for (std::string source; std::getline(list, source, ',');) sources.push_back(source);
    }
    argc = kept;
    argv[argc] = nullptr;
    return sources;
}

bool ends_with_path(const std::string& file, std::string source) {
    while (source.rfind("../", 0) == 0) source.erase(0, 3);
    if (source.front() != '/') source.insert(source.begin(), '/');
    return file.size() >= source.size() &&
           file.compare(file.size() - source.size(), source.size(), source) == 0;
}

// GoogleTest's filter for the tests of a source; empty: there are none.
std::string filter_of(const std::string& source) {
    const auto& tests = *testing::UnitTest::GetInstance();
    std::string filter;
    for (int i = 0; i < tests.total_test_suite_count(); ++i) {
        const testing::TestSuite& suite = *tests.GetTestSuite(i);
        for (int j = 0; j < suite.total_test_count(); ++j) {
            const testing::TestInfo& test = *suite.GetTestInfo(j);
            if (test.file() != nullptr && ends_with_path(test.file(), source))
                filter += std::string(suite.name()) + "." + test.name() + ":";
        }
    }
    return filter;
}

}  // namespace

int run_tests(int argc, char** argv) {
    const std::vector<std::string> sources = sources_asked_for(argc, argv);
    testing::InitGoogleMock(&argc, argv);
    std::string filter;
    for (const std::string& source : sources) {
        const std::string tests = filter_of(source);
        if (tests.empty()) {
            std::cerr << "no test here is of " << source << '\n';
            return 1;
        }
        filter += tests;
    }
    // A filter that was asked for besides chooses for itself.
    if (!filter.empty() && testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = filter;
    return RUN_ALL_TESTS();
}

}  // namespace tandem::test
