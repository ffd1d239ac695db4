// The search for cuBLASLt: a file named by TANDEM_CUBLASLT is opened or refused by name, never replaced.
#include "common/ops/cuda/cublaslt.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/error.h"

namespace tandem::ops::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const char* file) {
    ::setenv("TANDEM_CUBLASLT", file, 1);
    try {
        cublaslt();  // looked for again after a failure
    } catch (const CudaError& error) {
        return error.what();
    }
    return "found";
}

TEST(CublasLt, AFileThatIsNamedAndNotThereIsNamed) {
    EXPECT_THAT(refusal("/no/such/libcublasLt.so"),
                AllOf(HasSubstr("TANDEM_CUBLASLT"), HasSubstr("/no/such/libcublasLt.so")));
}

TEST(CublasLt, AnotherLibraryIsRefusedByItsFirstMissingEntryPoint) {
    EXPECT_THAT(refusal("libm.so.6"), HasSubstr("cublasLtCreate"));
}

}  // namespace
}  // namespace tandem::ops::cuda
