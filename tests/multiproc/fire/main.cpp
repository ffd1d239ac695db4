// The test binary is also its own trainers.
#include <gmock/gmock.h>

#include <cstdio>
#include <string>

#include "common/error.h"
#include "tests/multiproc/fire/trainer.h"
#include "tests/multiproc/sync/bodies.h"
#include "tests/support/run_tests.h"

int main(int argc, char** argv) {
    if (argc == 2 && std::string(argv[1]) == "--trainer") {
        try {
            return tandem::fire::run_trainer();
        } catch (const tandem::TransportError&) {  // the other rank is gone or frozen
            return tandem::sync::kJobLost;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "trainer: %s\n", error.what());
            return 1;
        }
    }
    return tandem::test::run_tests(argc, argv);
}
