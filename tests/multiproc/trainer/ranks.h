// What the test program does as a rank of its own tests.
#pragma once

#include <cstddef>

namespace tandem::trainer::testing {

int policy_rank(char** arguments);  // policy_processes_test.cpp: DP CP MODE DIR
int tensor_rank(std::size_t draw);  // tensor_processes_test.cpp

}  // namespace tandem::trainer::testing
