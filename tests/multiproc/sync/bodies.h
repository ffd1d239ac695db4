// What a trainer rank of these tests does: this binary started again with "--rank BODY". Settings come from
// the environment: TEST_ENGINE (address), TEST_MESH ("2,2"), TEST_SOURCE (dtype), TEST_BUCKET (bytes),
// TEST_FIRST (version).
#pragma once

#include <string>

namespace tandem::sync {

inline constexpr int kSyncFailed = 3;  // exit code: a push threw, which the test expected

// push        two versions, weights compared after each; exit 0
// corrupt     a good version, one with a byte of bucket 2 flipped (must fail, alike on every rank), a good
// one; exit 0 forever     versions until a push throws; exit kSyncFailed many        300 versions; file
// descriptors and memory must stay flat after the tenth; exit 0
int run_body(const std::string& name);

}  // namespace tandem::sync
