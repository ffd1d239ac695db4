// The main of every test program that needs no other.
#include "tests/support/run_tests.h"

int main(int argc, char** argv) {
    return tandem::test::run_tests(argc, argv);
}
