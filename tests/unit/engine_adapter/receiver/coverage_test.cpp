// The check of a plan against a naive one: a counter for every byte.
#include "engine_adapter/receiver/coverage.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "common/error.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kRegion = 4096;

std::string refusal(const std::vector<TensorInfo>& tensors, const TransferPlan& plan,
                    std::vector<std::uint64_t> regions = {kRegion}) {
    try {
        check_plan(tensors, regions, plan);
    } catch (const ProtocolError& error) {
        return error.what();
    }
    return "";
}

TransferPlan one_bucket(std::vector<Transfer> transfers) {
    const std::uint64_t count = transfers.size();
    return {std::move(transfers), {0, count}};
}

// `count` elements, contiguous.
Transfer run(std::uint32_t tensor, std::uint64_t to, std::uint64_t count, DType dtype = DType::uint8) {
    return {tensor, 3, 0, dtype, 1, count, 0, 0, to, 0};
}

bool covers_exactly(const std::vector<TensorInfo>& tensors, const TransferPlan& plan) {
    std::vector<std::vector<int>> counts;
    for (const TensorInfo& tensor : tensors) counts.emplace_back(tensor_bytes(tensor), 0);
    for (const Transfer& t : plan.transfers) {
        const std::uint64_t row = t.row_elements * dtype_size(tensors[t.tensor].dtype);
        for (std::uint64_t r = 0; r < t.rows; ++r) {
            for (std::uint64_t i = 0; i < row; ++i) ++counts[t.tensor].at(t.to + r * t.to_stride + i);
        }
    }
    for (const auto& bytes : counts) {
        if (std::any_of(bytes.begin(), bytes.end(), [](int n) { return n != 1; })) return false;
    }
    return true;
}

// Cuts a box of a tensor [rows, width] into boxes.
void cut(std::mt19937& random, std::uint64_t width, std::uint64_t row, std::uint64_t rows, std::uint64_t left,
         std::uint64_t columns, int depth, std::vector<Transfer>& out) {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    if (depth > 0 && rows > 1 && below(2) == 0) {
        const std::uint64_t at = 1 + below(rows - 1);
        cut(random, width, row, at, left, columns, depth - 1, out);
        return cut(random, width, row + at, rows - at, left, columns, depth - 1, out);
    }
    if (depth > 0 && columns > 1 && below(3) != 0) {
        const std::uint64_t at = 1 + below(columns - 1);
        cut(random, width, row, rows, left, at, depth - 1, out);
        return cut(random, width, row, rows, left + at, columns - at, depth - 1, out);
    }
    out.push_back({0, 0, 0, DType::uint8, rows, columns, 0, columns, row * width + left, width});
}

// Boxes, runs that begin and end anywhere, rows whose stride is no row of anybody else, and now and then a
// byte too many or too few.
TEST(Coverage, AgreesWithACounterForEveryByteOnRandomPlans) {
    std::mt19937 random(17);
    int whole = 0;
    for (int round = 0; round < 6000; ++round) {
        const std::uint64_t width = 1 + random() % 9;
        const std::uint64_t rows = 1 + random() % 12;
        const std::vector<TensorInfo> tensors{
            {"x", {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width)}, DType::uint8}};
        std::vector<Transfer> transfers;
        if (round % 3 == 0) {
            // Every n-th byte or group, as rows of another stride.
            const std::uint64_t total = rows * width;
            const std::uint64_t group = 1 + random() % 4;
            const std::uint64_t stride = group * (1 + random() % 3);
            for (std::uint64_t first = 0; first < std::min(stride, total); first += group) {
                const std::uint64_t count = (total - first) / stride;
                if (count > 0)
                    transfers.push_back({0, 0, 0, DType::uint8, count, group, 0, group, first, stride});
                const std::uint64_t at = first + count * stride;
                if (at < total) transfers.push_back(run(0, at, std::min(group, total - at)));
            }
        } else {
            cut(random, width, 0, rows, 0, width, 4, transfers);
        }
        std::shuffle(transfers.begin(), transfers.end(), random);
        if (random() % 2 == 0) {
            Transfer& victim = transfers[random() % transfers.size()];
            switch (random() % 5) {
                case 0:
                    victim.to += 1;
                    break;
                case 1:
                    victim.rows += 1;
                    break;
                case 2:
                    victim.to_stride += 1;
                    break;
                case 3:
                    victim.row_elements = std::max<std::uint64_t>(1, victim.row_elements - 1);
                    break;
                default:
                    victim = transfers[random() % transfers.size()];
            }
        }
        const TransferPlan plan = one_bucket(transfers);
        bool inside = true;
        for (const Transfer& t : transfers) {
            inside = inside && t.to + (t.rows - 1) * t.to_stride + t.row_elements <= rows * width;
        }
        const bool right = inside && covers_exactly(tensors, plan);
        ASSERT_EQ(refusal(tensors, plan).empty(), right)
            << "round " << round << ": " << refusal(tensors, plan);
        whole += right ? 1 : 0;
    }
    EXPECT_GT(whole, 2500);
    EXPECT_LT(whole, 5000);
}

TEST(Coverage, NamesTheTensorThatMissesOrRepeatsBytes) {
    const std::vector<TensorInfo> tensors{{"a", {64}, DType::float32}, {"b", {50}, DType::bfloat16}};
    const auto a = [](std::uint64_t to, std::uint64_t count) { return run(0, to, count, DType::float32); };
    const Transfer b = run(1, 0, 50, DType::bfloat16);
    EXPECT_EQ(refusal(tensors, one_bucket({a(0, 32), a(128, 32), b})), "");
    EXPECT_EQ(refusal(tensors, {{b, a(0, 32), a(128, 32)}, {0, 1, 1, 3}}), "");
    EXPECT_THAT(refusal(tensors, one_bucket({a(0, 32), b})), HasSubstr("128 of the 256 bytes of tensor 'a'"));
    EXPECT_THAT(refusal(tensors, one_bucket({a(0, 64)})), HasSubstr("0 of the 100 bytes of tensor 'b'"));
    EXPECT_THAT(refusal(tensors, one_bucket({a(0, 40), a(128, 32), b})),
                HasSubstr("tensor 'a' bytes [128, 256) from rank 3 is written twice"));
    EXPECT_THAT(refusal(tensors, one_bucket({a(0, 64), b, b})), HasSubstr("tensor 'b'"));
}

TEST(Coverage, RefusesWhatDoesNotFitBeforeItIsUsed) {
    constexpr std::uint64_t kHuge = ~std::uint64_t{0};
    const std::vector<TensorInfo> tensors{{"a", {64}, DType::float32}};
    const Transfer good = run(0, 0, 64, DType::float32);
    ASSERT_EQ(refusal(tensors, one_bucket({good})), "");
    const auto with = [&](auto change) {
        Transfer t = good;
        change(t);
        return refusal(tensors, one_bucket({t}));
    };
    EXPECT_THAT(with([](Transfer& t) { t.tensor = 1; }),
                HasSubstr("tensor number 1 from rank 3, the engine holds 1"));
    EXPECT_THAT(with([](Transfer& t) { t.row_elements = 65; }),
                HasSubstr("not inside the tensor's 256 bytes"));
    EXPECT_THAT(with([](Transfer& t) { t.to = 256; }), HasSubstr("not inside the tensor"));
    EXPECT_THAT(with([](Transfer& t) { t.to = kHuge - 3; }), HasSubstr("not inside the tensor"));
    EXPECT_THAT(with([](Transfer& t) { t.row_elements = kHuge; }), HasSubstr("tensor 'a'"));
    EXPECT_THAT(with([](Transfer& t) { t.row_elements = (kHuge >> 2) + 1; }), HasSubstr("tensor 'a'"));
    EXPECT_THAT(with([](Transfer& t) { t.row_elements = 0; }), HasSubstr("is 1 rows of 0 elements"));
    EXPECT_THAT(with([](Transfer& t) { t.rows = 0; }), HasSubstr("is 0 rows of 64 elements"));
    EXPECT_THAT(with([](Transfer& t) { t.rows = kHuge; }), HasSubstr("tensor 'a'"));
    EXPECT_THAT(with([](Transfer& t) {
                    t.rows = 3;
                    t.to_stride = kHuge / 2 + 1;
                }),
                HasSubstr("not inside the tensor"));
    EXPECT_THAT(with([](Transfer& t) { t.region = 1; }), HasSubstr("comes from region 1 of 1"));
    EXPECT_THAT(with([](Transfer& t) { t.from = kRegion - 252; }),
                HasSubstr("not inside the 4096 bytes of region 0"));
    EXPECT_THAT(with([](Transfer& t) { t.from = kHuge - 3; }), HasSubstr("not inside the 4096 bytes"));
    EXPECT_THAT(with([](Transfer& t) {
                    t.rows = 2;
                    t.row_elements = 32;
                    t.to_stride = 128;
                    t.from_stride = kHuge - 127;
                }),
                HasSubstr("not inside the 4096 bytes"));
    EXPECT_THAT(with([](Transfer& t) { t.from = 2; }), HasSubstr("not aligned"));
    EXPECT_THAT(with([](Transfer& t) {
                    t.rows = 2;
                    t.row_elements = 33;
                    t.to_stride = 124;
                    t.from_stride = 132;
                }),
                HasSubstr("overlaps itself"));
    EXPECT_THAT(with([](Transfer& t) {
                    t.rows = 2;
                    t.row_elements = 32;
                    t.to_stride = 128;
                    t.from_stride = 124;
                }),
                HasSubstr("takes rows that overlap in their region"));
    EXPECT_THAT(with([](Transfer& t) { t.from_dtype = DType::int32; }),
                HasSubstr("cannot be cast from int32"));
    EXPECT_THAT(with([](Transfer& t) { t.from_dtype = static_cast<DType>(77); }),
                HasSubstr("cannot be cast"));
    EXPECT_EQ(with([](Transfer& t) { t.from_dtype = DType::bfloat16; }), "");
    for (const std::vector<std::uint64_t>& first :
         std::vector<std::vector<std::uint64_t>>{{}, {0}, {1, 1}, {0, 2}, {0, 1, 0, 1}, {0, 0}}) {
        EXPECT_THAT(refusal(tensors, {{good}, first}), HasSubstr("do not follow each other")) << first.size();
    }
}

TEST(Coverage, APlanThatCutsTooFinelyToBeCheckedIsRefused) {
    constexpr std::int64_t kSide = 8192;
    const std::vector<TensorInfo> tensors{{"x", {kSide, kSide}, DType::uint8}};
    // Rows of one byte at strides that no grid has in common: each row must be looked at by itself.
    const TransferPlan plan = one_bucket({{0, 0, 0, DType::uint8, kSide * kSide / 5, 1, 0, 1, 0, 5},
                                          {0, 0, 0, DType::uint8, kSide * kSide / 7, 1, 0, 1, 1, 7}});
    EXPECT_THAT(refusal(tensors, plan, {kSide * kSide}), HasSubstr("cuts tensor 'x' into more than"));
}

// 120,000 transfers: columns of 2,000 tensors, runs of 2,000 more.
TEST(Coverage, ALargePlanIsChecked) {
    std::vector<TensorInfo> tensors;
    std::vector<Transfer> transfers;
    for (std::uint32_t i = 0; i < 4000; ++i) {
        tensors.push_back({"t" + std::to_string(i), {600, 40}, DType::bfloat16});
        for (std::uint32_t k = 0; k < 30; ++k) {
            if (i % 2 == 0) {
                transfers.push_back(
                    {i, k, 0, DType::bfloat16, 200, 4, 0, 8, k / 10 * 200 * 80 + k % 10 * 8, 80});
            } else {
                transfers.push_back(run(i, k * 1600, 800, DType::bfloat16));
            }
        }
    }
    TransferPlan plan = one_bucket(transfers);
    EXPECT_EQ(refusal(tensors, plan, {1 << 20}), "");
    plan.transfers[60'000].to += 2;
    EXPECT_THAT(refusal(tensors, plan, {1 << 20}), HasSubstr("tensor 't2000'"));
}

TEST(Coverage, CoresAreThoseOfAllRanksOrOfNone) {
    const std::vector<TensorInfo> tensors{{"a", {64}, DType::uint8, {}}};
    TransferPlan plan = one_bucket({run(0, 0, 64)});
    EXPECT_EQ(refusal(tensors, plan), "");
    plan.cores = {0, 0, 1, 1};
    EXPECT_EQ(refusal(tensors, plan), "");
    plan.cores.pop_back();
    EXPECT_THAT(refusal(tensors, plan), HasSubstr("from rank 3: there are cores of 3 ranks"));
}

}  // namespace
}  // namespace tandem::engine
