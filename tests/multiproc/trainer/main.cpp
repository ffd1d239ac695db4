#include <cstdlib>
#include <string_view>

#include "tests/multiproc/trainer/ranks.h"
#include "tests/support/run_tests.h"

int main(int argc, char** argv) {
    using namespace tandem::trainer::testing;
    const std::string_view first = argc > 1 ? argv[1] : "";
    if (first == "--rank") return argc == 6 ? policy_rank(argv + 2) : 2;
    if (first == "--tensor-rank")
        return argc == 3 ? tensor_rank(static_cast<std::size_t>(std::atoi(argv[2]))) : 2;
    return tandem::test::run_tests(argc, argv);
}
