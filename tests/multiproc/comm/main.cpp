// The test binary is also its own rank: RankProcesses starts it again with "--rank-body NAME".
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "common/comm/launch.h"
#include "tests/multiproc/comm/bodies.h"
#include "tests/support/run_tests.h"

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--rank-body") == 0) {
        try {
            return tandem::comm::run_body(argv[2]);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s\n", tandem::comm::rank_environment().rank, error.what());
            return 1;
        }
    }
    return tandem::test::run_tests(argc, argv);
}
