// Matmuls over a fake cuBLASLt and a fake driver: the rows and the alignment for which an algorithm is
// chosen, and the fallback where it does not take a call's rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "common/ops/cuda/cublaslt.cuh"
#include "common/ops/matmul.h"
#include "tests/unit/common/device/cuda_rig.h"

namespace tandem::ops {
namespace {

using cuda::CublasLt;
using ::testing::ElementsAre;
using ::testing::SizeIs;

struct Asked {
    std::uint64_t rows;  // of c
    std::uint32_t alignment;
};

// An algorithm is a number: which question it answers.
struct FakeCublasLt {
    std::vector<Asked> asked;
    std::vector<std::uint64_t> checked;  // rows
    std::vector<std::uint64_t> ran;      // algorithms
    cublasStatus_t check = CUBLAS_STATUS_SUCCESS;
    std::size_t workspace = 0;  // that a check finds is needed
    std::uint32_t alignment = 0;
    const void* bias = nullptr;
};

FakeCublasLt g_fake;

// c is column-major there, so its columns are our rows.
std::uint64_t rows_of(cublasLtMatrixLayout_t layout) {
    return *reinterpret_cast<const std::uint64_t*>(layout);
}

CublasLt make_table() {
    CublasLt t{};
    t.create = [](cublasLtHandle_t* handle) {
        *handle = reinterpret_cast<cublasLtHandle_t>(std::uintptr_t{8});
        return CUBLAS_STATUS_SUCCESS;
    };
    t.description_create = [](cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
        g_fake.bias = nullptr;
        *made = reinterpret_cast<cublasLtMatmulDesc_t>(std::uintptr_t{8});
        return CUBLAS_STATUS_SUCCESS;
    };
    t.description_destroy = [](cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; };
    t.description_set = [](cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t what, const void* value,
                           std::size_t) {
        if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) g_fake.bias = *static_cast<void* const*>(value);
        return CUBLAS_STATUS_SUCCESS;
    };
    t.layout_create = [](cublasLtMatrixLayout_t* made, cudaDataType, std::uint64_t, std::uint64_t columns,
                         std::int64_t) {
        *made = reinterpret_cast<cublasLtMatrixLayout_t>(new std::uint64_t(columns));
        return CUBLAS_STATUS_SUCCESS;
    };
    t.layout_destroy = [](cublasLtMatrixLayout_t layout) {
        delete reinterpret_cast<std::uint64_t*>(layout);
        return CUBLAS_STATUS_SUCCESS;
    };
    t.preference_create = [](cublasLtMatmulPreference_t* made) {
        *made = reinterpret_cast<cublasLtMatmulPreference_t>(std::uintptr_t{8});
        return CUBLAS_STATUS_SUCCESS;
    };
    t.preference_destroy = [](cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; };
    t.preference_set = [](cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t what,
                          const void* value, std::size_t) {
        if (what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
            g_fake.alignment = *static_cast<const std::uint32_t*>(value);
        return CUBLAS_STATUS_SUCCESS;
    };
    t.heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                     cublasLtMatmulHeuristicResult_t* result, int* found) {
        g_fake.asked.push_back({rows_of(c), g_fake.alignment});
        *result = {};
        result->algo.data[0] = g_fake.asked.size();
        *found = 1;
        return CUBLAS_STATUS_SUCCESS;
    };
    t.algorithm_check = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                           const cublasLtMatmulAlgo_t*, cublasLtMatmulHeuristicResult_t* result) {
        g_fake.checked.push_back(rows_of(c));
        *result = {};
        result->workspaceSize = g_fake.workspace;
        return g_fake.check;
    };
    t.matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                  const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t,
                  void*, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t,
                  cudaStream_t) {
        g_fake.ran.push_back(algorithm->data[0]);
        return CUBLAS_STATUS_SUCCESS;
    };
    t.status_name = [](cublasStatus_t) { return "a status"; };
    t.status_string = [](cublasStatus_t) { return "as the fake says"; };
    return t;
}

class MatmulChoice : public Cuda {
  protected:
    MatmulChoice() {
        static const CublasLt table = make_table();
        g_fake = {};
        cuda::replace_cublaslt(&table);
    }
    ~MatmulChoice() override { cuda::replace_cublaslt(nullptr); }

    // x [rows, 64] times weight [n, 64]; `offset` bytes into a block that is aligned to 256.
    void product(std::int64_t rows, std::int64_t n, std::size_t offset = 0, bool bias = false) {
        const auto at = [&](std::int64_t r, std::int64_t c) {
            const auto bytes = static_cast<std::size_t>(r * c) * 4;
            blocks_.emplace_back(bytes + 512, "matmul_choice", device_pool(kGpu));
            const auto address = reinterpret_cast<std::uintptr_t>(blocks_.back().data());
            const std::size_t start = (256 - address % 256) % 256 + offset;
            return Tensor::borrow(blocks_.back().span().subspan(start, bytes), {r, c}, DType::float32, kGpu);
        };
        const Tensor bias_row = bias ? at(1, n).reshape({n}) : Tensor();
        linear(stream_, at(rows, 64), at(n, 64), bias_row, at(rows, n));
        if (bias) {
            EXPECT_EQ(g_fake.bias, bias_row.raw());
        }
    }
    Stream stream_ = Stream::make_compute(kGpu);
    std::vector<Buffer> blocks_;
};

// Each test has an n of its own: what was chosen is kept for the process.
TEST_F(MatmulChoice, MemoryOfAnyAllocatorHasOneAlgorithm) {
    for (const std::size_t offset : {0u, 128u, 64u, 48u, 16u}) product(100, 8, offset);
    ASSERT_THAT(g_fake.asked, SizeIs(1));
    EXPECT_EQ(g_fake.asked[0].alignment, 16U);
    product(100, 8, 8);
    ASSERT_THAT(g_fake.asked, SizeIs(2));
    EXPECT_EQ(g_fake.asked[1].alignment, 8U);
}

TEST_F(MatmulChoice, TheRowsOfAClassShareItsAlgorithmAndAreCheckedOnceEach) {
    for (const std::int64_t rows : {1, 7, 100, 7, 128, 1}) product(rows, 16, 0, true);
    ASSERT_THAT(g_fake.asked, SizeIs(1));
    EXPECT_EQ(g_fake.asked[0].rows, 128U);
    EXPECT_THAT(g_fake.checked, ElementsAre(1, 7, 100));
    EXPECT_THAT(g_fake.ran, ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST_F(MatmulChoice, RowsThatTheClasssAlgorithmDoesNotTakeGetTheirOwn) {
    product(100, 24);
    for (const cublasStatus_t refusal : {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED}) {
        g_fake.check = refusal;
        const std::int64_t rows = refusal == CUBLAS_STATUS_INVALID_VALUE ? 50 : 51;
        product(rows, 24);
        product(rows, 24);
        EXPECT_EQ(g_fake.asked.back().rows, static_cast<std::uint64_t>(rows));
    }
    g_fake.check = CUBLAS_STATUS_SUCCESS;
    g_fake.workspace = std::size_t{64} << 20;  // more than is set aside
    product(52, 24);
    g_fake.workspace = 0;
    product(100, 24);
    EXPECT_THAT(g_fake.ran, ElementsAre(1, 2, 2, 3, 3, 4, 1));
}

}  // namespace
}  // namespace tandem::ops
