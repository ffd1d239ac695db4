// cuBLASLt, opened by the first matmul: no program depends on it at its start.
#pragma once

#include <cublasLt.h>

#include <string_view>

namespace tandem::ops::cuda {

struct CublasLt {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulDescCreate) description_create;
    decltype(&cublasLtMatmulDescDestroy) description_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) description_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmulAlgoCheck) algorithm_check;
    decltype(&cublasLtGetStatusName) status_name;
    decltype(&cublasLtGetStatusString) status_string;
};

const CublasLt& cublaslt();                    // throws CudaError when there is none
void replace_cublaslt(const CublasLt* table);  // for tests: takes the library's place
cublasLtHandle_t cublaslt_handle(int device);  // of the current device; one a device, kept
void check(std::string_view op, std::string_view call, cublasStatus_t status);

}  // namespace tandem::ops::cuda
