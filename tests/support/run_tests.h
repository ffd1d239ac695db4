// What a test program's main does. One program a folder holds the tests of several entries of CTest.
#pragma once

namespace tandem::test {

// GoogleTest's options, and --of=push/push_test.cpp,probe_test.cpp: only the tests of these sources, each named by the end of its
// path; one that holds no test fails the run. Returns the exit code.
int run_tests(int argc, char** argv);

}  // namespace tandem::test
