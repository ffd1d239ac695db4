// Matmuls by cuBLASLt. The algorithm is chosen once for (n, k, dtypes, operations, alignment) and a class of
// m (shared::rows_class), never with split-K: within a class a row of c is the same bit for bit whatever m
// is.
#include <cublasLt.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "common/device/cuda/native.h"
#include "common/log.h"
#include "common/ops/cuda/bias_rows.cuh"
#include "common/ops/cuda/cublaslt.cuh"
#include "common/ops/cuda/few_rows.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/matmul.h"
#include "common/ops/shared/gemm_layout.h"

namespace tandem::ops::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = 32 << 20;

struct Product {
    const char* op;
    std::int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, bias;
    DType input, output;
    std::uint32_t alignment;        // bytes, of all operands; 16 count as any more
    const void* bias_at = nullptr;  // where p.bias

    auto key(int device, std::int64_t rows) const {
        return std::tuple(device, rows, n, k, transpose_a, transpose_b, accumulate, bias, input, output,
                          alignment);
    }
};

cudaDataType type_of(DType dtype) {
    return dtype == DType::float32 ? CUDA_R_32F : CUDA_R_16BF;
}

struct Layout {
    Layout(const char* op, DType dtype, const shared::ColumnMajor& matrix) {
        check(op, "cublasLtMatrixLayoutCreate",
              cublaslt().layout_create(&handle, type_of(dtype), static_cast<std::uint64_t>(matrix.rows),
                                       static_cast<std::uint64_t>(matrix.columns), matrix.leading));
    }
    ~Layout() { cublaslt().layout_destroy(handle); }
    Layout(const Layout&) = delete;
    Layout& operator=(const Layout&) = delete;
    cublasLtMatrixLayout_t handle = nullptr;
};

// A matmul as cuBLASLt describes it: the operation and its three matrices.
struct Problem {
    explicit Problem(const Product& p)
        : layout(shared::gemm_layout(p.m, p.n, p.k, p.transpose_a, p.transpose_b)),
          first(p.op, p.input, layout.first),
          second(p.op, p.input, layout.second),
          product(p.op, p.output, layout.product) {
        // fp32 sums, and fp32 products of fp32 inputs: no TF32.
        check(p.op, "cublasLtMatmulDescCreate",
              cublaslt().description_create(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        set(p.op, CUBLASLT_MATMUL_DESC_TRANSA, layout.first.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(p.op, CUBLASLT_MATMUL_DESC_TRANSB, layout.second.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
        if (!p.bias) return;
        set(p.op, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set(p.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias_at);
    }
    ~Problem() { cublaslt().description_destroy(description); }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;

    template <typename T>
    void set(const char* op, cublasLtMatmulDescAttributes_t attribute, T value) {
        check(op, "cublasLtMatmulDescSetAttribute",
              cublaslt().description_set(description, attribute, &value, sizeof value));
    }

    shared::GemmLayout layout;
    Layout first, second, product;
    cublasLtMatmulDesc_t description = nullptr;
};

cublasLtMatmulHeuristicResult_t choose(const Product& p, int device) {
    const Problem problem(p);
    cublasLtMatmulPreference_t preference = nullptr;
    check(p.op, "cublasLtMatmulPreferenceCreate", cublaslt().preference_create(&preference));
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                          void (*)(cublasLtMatmulPreference_t)>
        owner(preference, [](cublasLtMatmulPreference_t x) { cublaslt().preference_destroy(x); });
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        check(p.op, "cublasLtMatmulPreferenceSetAttribute",
              cublaslt().preference_set(preference, attribute, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        set(attribute, p.alignment);
    }
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    check(p.op, "cublasLtMatmulAlgoGetHeuristic",
          cublaslt().heuristic(cublaslt_handle(device), problem.description, problem.first.handle,
                               problem.second.handle, problem.product.handle, problem.product.handle,
                               preference, 1, &result, &found));
    if (found == 0) {
        throw CudaError(fmt::format("{}: cublasLtMatmulAlgoGetHeuristic", p.op), "no algorithm",
                        fmt::format("[{}, {}] times [{}, {}]", p.m, p.k, p.k, p.n));
    }
    return result;
}

// The rows that the algorithm is chosen for. A transposed a has m as its leading dimension, whose alignment
// counts, and is a gradient of a weight: there every m is a shape of its own.
std::int64_t chosen_rows(const Product& p) {
    if (p.transpose_a) return p.m;
    return shared::rows_class(p.m);
}

// The algorithm of m's class as this m takes it: with the workspace that it needs here. An m that it does not
// take gets one of its own.
cublasLtMatmulHeuristicResult_t fitted(const Product& p, cublasLtMatmulHeuristicResult_t of_class,
                                       int device) {
    const Problem problem(p);
    cublasLtMatmulHeuristicResult_t here{};
    const cublasStatus_t status = cublaslt().algorithm_check(
        cublaslt_handle(device), problem.description, problem.first.handle, problem.second.handle,
        problem.product.handle, problem.product.handle, &of_class.algo, &here);
    if (status == CUBLAS_STATUS_SUCCESS && here.workspaceSize <= kWorkspaceBytes) {
        of_class.workspaceSize = here.workspaceSize;
        return of_class;
    }
    log_info(
        "{}: the algorithm for {} rows does not take [{}, {}] times [{}, {}], which gets one of its own: "
        "bits may differ from other numbers of rows",
        p.op, chosen_rows(p), p.m, p.k, p.k, p.n);
    return choose(p, device);
}

cublasLtMatmulHeuristicResult_t algorithm(const Product& p, int device) {
    static std::mutex mutex;
    static std::map<decltype(p.key(0, 0)), cublasLtMatmulHeuristicResult_t> chosen;
    const std::lock_guard lock(mutex);
    const auto known = chosen.find(p.key(device, p.m));
    if (known != chosen.end()) return known->second;
    Product asked = p;
    asked.m = chosen_rows(p);
    auto of_class = chosen.find(asked.key(device, asked.m));
    if (of_class == chosen.end())
        of_class = chosen.emplace(asked.key(device, asked.m), choose(asked, device)).first;
    if (asked.m == p.m) return of_class->second;
    return chosen.emplace(p.key(device, p.m), fitted(p, of_class->second, device)).first->second;
}

// No kernel reads more than 16 bytes at once: every allocator's memory gets the same algorithm.
std::uint32_t alignment_of(std::initializer_list<const void*> pointers) {
    std::uintptr_t bits = 16;
    for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
    return static_cast<std::uint32_t>(bits & (~bits + 1));  // the lowest bit that is set
}

void run(Stream& stream, Product p, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c) {
    Work work(stream, p.op);
    if (p.m == 0 || p.n == 0) return;
    if (p.k == 0) {
        if (!p.accumulate) work.clear(c.raw(), c.bytes());
        if (p.bias) add_bias_rows(work, bias, c);
        return;
    }
    // The epilogue takes a bias of c's dtype only.
    const bool apart = p.bias && p.input != p.output;
    p.bias = p.bias && !apart;
    p.bias_at = p.bias ? bias.raw() : nullptr;
    p.alignment = alignment_of({a.raw(), b.raw(), c.raw(), p.bias_at});
    const int device = stream.device().index;
    const cublasLtMatmulHeuristicResult_t chosen = algorithm(p, device);
    const Problem problem(p);
    const float alpha = 1.0f;
    const float beta = p.accumulate ? 1.0f : 0.0f;
    std::byte* const workspace = work.scratch(chosen.workspaceSize);
    check(p.op, "cublasLtMatmul",
          cublaslt().matmul(cublaslt_handle(device), problem.description, &alpha, b.raw(),
                            problem.first.handle, a.raw(), problem.second.handle, &beta, c.raw(),
                            problem.product.handle, c.raw(), problem.product.handle, &chosen.algo, workspace,
                            chosen.workspaceSize, ::tandem::cuda::native(stream)));
    if (apart) add_bias_rows(work, bias, c);
}

Product product(const char* op, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                const Tensor& c, bool accumulate, bool bias) {
    return {.op = op,
            .m = transpose_a ? a.dim(1) : a.dim(0),
            .n = transpose_b ? b.dim(0) : b.dim(1),
            .k = transpose_a ? a.dim(0) : a.dim(1),
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulate = accumulate,
            .bias = bias,
            .input = a.dtype(),
            .output = c.dtype(),
            .alignment = 0};
}

}  // namespace

void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate) {
    run(stream,
        product("matmul", a, transpose_a == Transpose::yes, b, transpose_b == Transpose::yes, c, accumulate,
                false),
        a, b, {}, c);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y) {
    if (takes_few_rows(x, weight)) return linear_few_rows(stream, x, weight, bias, y);
    run(stream, product("linear", x, false, weight, true, y, false, bias.defined()), x, weight, bias, y);
}

void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate) {
    run(stream, product("linear_backward_input", dy, false, weight, false, dx, accumulate, false), dy, weight,
        {}, dx);
}

void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight,
                            bool accumulate) {
    run(stream, product("linear_backward_weight", dy, true, x, false, dweight, accumulate, false), dy, x, {},
        dweight);
}

}  // namespace tandem::ops::cuda
