#include "common/ops/cuda/cublaslt.cuh"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "common/error.h"

namespace tandem::ops::cuda {
namespace {

#define TANDEM_STRING2(x) #x
#define TANDEM_STRING(x) TANDEM_STRING2(x)
constexpr const char* kNames[] = {"libcublasLt.so." TANDEM_STRING(CUBLAS_VER_MAJOR),
                                  "/usr/local/cuda/lib64/libcublasLt.so." TANDEM_STRING(CUBLAS_VER_MAJOR)};

std::atomic<const CublasLt*> g_replaced{nullptr};

template <typename F>
void find(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr) throw CudaError("cuBLASLt", "no entry point", name);
}

// The file that TANDEM_CUBLASLT names and no other, or what the loader finds, or the toolkit's usual place.
void* load() {
    const char* named = std::getenv("TANDEM_CUBLASLT");
    if (named != nullptr && *named != '\0') {
        void* library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr)
            throw CudaError("cuBLASLt", "not found", fmt::format("TANDEM_CUBLASLT names it: {}", dlerror()));
        return library;
    }
    std::string reason;
    for (const char* name : kNames) {
        if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
        if (reason.empty()) reason = dlerror();
    }
    throw CudaError("cuBLASLt", "not found",
                    reason +
                        "; it comes with the CUDA toolkit: put its folder on LD_LIBRARY_PATH, or name the "
                        "file in TANDEM_CUBLASLT");
}

CublasLt open() {
    void* library = load();
    CublasLt t{};
    find(library, "cublasLtCreate", t.create);
    find(library, "cublasLtMatmul", t.matmul);
    find(library, "cublasLtMatmulDescCreate", t.description_create);
    find(library, "cublasLtMatmulDescDestroy", t.description_destroy);
    find(library, "cublasLtMatmulDescSetAttribute", t.description_set);
    find(library, "cublasLtMatrixLayoutCreate", t.layout_create);
    find(library, "cublasLtMatrixLayoutDestroy", t.layout_destroy);
    find(library, "cublasLtMatmulPreferenceCreate", t.preference_create);
    find(library, "cublasLtMatmulPreferenceDestroy", t.preference_destroy);
    find(library, "cublasLtMatmulPreferenceSetAttribute", t.preference_set);
    find(library, "cublasLtMatmulAlgoGetHeuristic", t.heuristic);
    find(library, "cublasLtMatmulAlgoCheck", t.algorithm_check);
    find(library, "cublasLtGetStatusName", t.status_name);
    find(library, "cublasLtGetStatusString", t.status_string);
    return t;
}

}  // namespace

void replace_cublaslt(const CublasLt* table) {
    g_replaced.store(table);
}

const CublasLt& cublaslt() {
    if (const CublasLt* replaced = g_replaced.load()) return *replaced;
    static const CublasLt table = open();
    return table;
}

cublasLtHandle_t cublaslt_handle(int device) {
    static std::mutex mutex;
    static std::map<int, cublasLtHandle_t> handles;
    const std::lock_guard lock(mutex);
    cublasLtHandle_t& handle = handles[device];
    if (handle == nullptr) check("matmul", "cublasLtCreate", cublaslt().create(&handle));
    return handle;
}

void check(std::string_view op, std::string_view call, cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw CudaError(fmt::format("{}: {}", op, call), cublaslt().status_name(status),
                    cublaslt().status_string(status));
}

}  // namespace tandem::ops::cuda
