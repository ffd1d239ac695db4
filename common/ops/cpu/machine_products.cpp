// oneDNN's products with ours for up to 64 rows, wherever trials show that both have the same bits.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/pair_products.h"
#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {
namespace {

constexpr std::int64_t kTrialRows = 16;

// How to multiply by a packed side as oneDNN does.
struct PairPlan {
    std::int64_t columns = 0;  // of a block; 0: ours are not used
    std::int64_t chain = 0;
};

class PairKernel : public ProductKernel {
  public:
    PairKernel(std::int64_t rows, const RightSide& side, const PairPlan& plan)
        : rows_(rows), side_(side), plan_(plan) {}
    void run(const std::byte* a, const std::byte* b, std::byte* c) override {
        run_to(rows_, a, b, {c, side_.n, DType::float32, nullptr});
    }
    bool run_to(std::int64_t rows, const std::byte* a, const std::byte* b, const Destination& to) override {
        const bool wide = to.dtype == DType::float32;
        kPairProducts.multiply({.rows = rows,
                                .n = side_.n,
                                .k = side_.k,
                                .columns = plan_.columns,
                                .chain = plan_.chain,
                                .a = reinterpret_cast<const std::uint16_t*>(a),
                                .b = reinterpret_cast<const std::uint32_t*>(b),
                                .bias = to.bias,
                                .c = wide ? reinterpret_cast<float*>(to.c) : nullptr,
                                .rounded_c = wide ? nullptr : reinterpret_cast<std::uint16_t*>(to.c),
                                .c_row = to.stride,
                                .next = reinterpret_cast<const char*>(to.next)});
        return true;
    }

  private:
    const std::int64_t rows_;
    const RightSide side_;
    const PairPlan plan_;
};

// Numbers of both signs whose sums round at nearly every step.
Lines trial_numbers(std::int64_t count) {
    std::minstd_rand generator(1);
    Lines result(static_cast<std::size_t>(count) * sizeof(std::uint16_t));
    auto* const to = reinterpret_cast<std::uint16_t*>(result.data());
    for (std::int64_t i = 0; i < count; ++i) {
        const auto bits = static_cast<std::uint32_t>(generator());
        to[i] = static_cast<std::uint16_t>((bits >> 8 & 0x807f) | (121 + bits % 13) << 7);
    }
    return result;
}

Lines outputs(std::int64_t n) {
    return Lines(static_cast<std::size_t>(kTrialRows * n) * sizeof(float));
}

// The chain by which ours have the bits of oneDNN's.
PairPlan find_plan(const RightSide& side) {
    const std::int64_t columns = onednn_pair_columns(side.n, side.k);
    if (columns == 0 || columns > kMostPairColumns) return {};
    ProductKernel* const library =
        product_kernel(onednn(), {kTrialRows, false, side, false, DType::float32, 1});
    if (library == nullptr) return {};
    const Lines a = trial_numbers(kTrialRows * side.k), b = trial_numbers(side.n * side.k);
    Lines packed(onednn().packed_bytes(side.n, side.k, side.dtype)), wanted = outputs(side.n);
    onednn().pack({side.n, side.k, side.dtype, WeightLayout::columns}, side.k, b.data(), packed.data());
    library->run(a.data(), packed.data(), wanted.data());
    for (const std::int64_t chain : {512, 1024, 2048, 1 << 30}) {
        const PairPlan plan{columns, chain};
        Lines got = outputs(side.n);
        PairKernel(kTrialRows, side, plan).run(a.data(), packed.data(), got.data());
        if (std::memcmp(got.data(), wanted.data(), got.bytes()) == 0) return plan;
    }
    return {};
}

PairPlan plan_of(const RightSide& side) {
    static std::mutex mutex;
    static std::map<RightSide, PairPlan> plans;
    const std::lock_guard lock(mutex);
    const auto found = plans.find(side);
    return found != plans.end() ? found->second : plans.emplace(side, find_plan(side)).first->second;
}

std::unique_ptr<ProductKernel> make_on_machine(const Product& p) {
    const bool ours = p.m <= kMostPairRows && p.b.dtype == DType::bfloat16 &&
                      p.b.layout == WeightLayout::packed && !p.transpose_a && !p.accumulate &&
                      p.output == DType::float32 && kPairProducts.runs_here();
    const PairPlan plan = ours ? plan_of(p.b) : PairPlan();
    if (plan.columns == 0) return onednn().make(p);
    return std::make_unique<PairKernel>(p.m, p.b, plan);
}

}  // namespace

const ProductLibrary& machine_products() {
    static const ProductLibrary library{make_on_machine, onednn().packed_bytes, onednn().pack};
    return library;
}

}  // namespace tandem::ops::detail
