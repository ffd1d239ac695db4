// Files of shared memory that have a name in /dev/shm: they outlive the processes that made them.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace tandem::test {

inline std::set<std::string> named_shared_memory() {
    std::set<std::string> names;
    std::error_code error;  // without /dev/shm nothing has a name
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error))
        names.insert(entry.path().filename().string());
    return names;
}

// That nothing is left which was not there `before`. Other tests run beside this one and name files of their own:
// those go with them, what is left by this one stays; so it is waited for, and only what stays is a failure.
inline void expect_no_shared_memory_left(const std::set<std::string>& before,
                                         std::chrono::seconds limit = std::chrono::seconds(90)) {
    const auto without = [](const std::set<std::string>& names, const std::set<std::string>& others) {
        std::set<std::string> rest;
        std::ranges::set_difference(names, others, std::inserter(rest, rest.end()));
        return rest;
    };
    std::set<std::string> left = without(named_shared_memory(), before);
    eventually(
        [&] {
            left = without(left, without(left, named_shared_memory()));  // those that are still there
            return left.empty();
        },
        limit);
    EXPECT_THAT(left, testing::IsEmpty()) << "in /dev/shm";
}

}  // namespace tandem::test
