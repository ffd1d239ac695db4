// The test binary is also its own engine and its own ranks.
#include <gmock/gmock.h>

#include <cstdio>

#include "tests/multiproc/sync/bodies.h"
#include "tests/multiproc/sync/engine_process.h"
#include "tests/support/run_tests.h"

int main(int argc, char** argv) {
    try {
        if (argc == 4 && std::string(argv[1]) == "--engine")
            return tandem::sync::run_engine(argv[2], argv[3]);
        if (argc == 3 && std::string(argv[1]) == "--rank") return tandem::sync::run_body(argv[2]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
        return 1;
    }
    return tandem::test::run_tests(argc, argv);
}
