// What a trainer rank of these tests does: this binary started again with "--rank BODY". Settings come from
// the environment: TEST_ENGINE (address), TEST_MESH ("2,2"), TEST_SOURCE (dtype), TEST_MODE, TEST_BUCKET
// (bytes), TEST_PATIENCE (ms for a phase with the engine; ranks wait twice as long for each other), TEST_RELAYED (JobOptions).
#pragma once

#include <string>

namespace tandem::sync {

inline constexpr int kJobLost = 3;  // exit code: a push threw, and the ranks cannot go on

//   push     two versions, weights compared after each; exit 0
//   corrupt  a good version, one with a byte of bucket 2 flipped (must fail, alike on every rank), a good
//   one;
//            exit 0
//   rounds   as the board says (TEST_BOARD): rounds of pushes, each until it fails or has made them all. A
//            push that fails with the engine is noted and ends the round; one that fails otherwise is noted
//            and ends the rank: exit kJobLost
//   many     TEST_MANY versions in every mode; memory, descriptors and shared memory must stay flat after the
//            tenth, here and in the engine (TEST_ENGINE_PID); exit 0
int run_body(const std::string& name);

}  // namespace tandem::sync
