// The bookkeeping of a version, and what a manifest covers.
#include "engine_adapter/receiver/version_progress.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "common/error.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const ProtocolError& error) {
        return error.what();
    }
    return "";
}

// As engine.h says it, from the tensors' own checksums.
ops::Checksum manifest_by_hand(std::int64_t version, const std::vector<TensorInfo>& tensors,
                               const std::vector<ops::Checksum>& checksums) {
    std::string text = fmt::format("{}\n", version);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        text += fmt::format("{}\t{}\t{}\t{}\n", tensors[i].name, dtype_name(tensors[i].dtype),
                            to_string(tensors[i].shape), ops::to_hex(checksums[i]));
    }
    return ops::checksum({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

// Two tensors in three buckets of 2, 0 and 3 transfers.
class VersionProgressTest : public testing::Test {
  protected:
    VersionProgressTest() : progress_(tensors_, plan_) {
        for (std::uint64_t i = 0; i < 5; ++i) checksums_.push_back({i + 1, 100 - i});
    }
    std::span<const ops::Checksum> of_bucket(std::size_t b) const {
        return std::span(checksums_).subspan(plan_.first[b], plan_.bucket(b).size());
    }
    static Transfer piece(std::uint32_t tensor, std::uint64_t to) {
        return {tensor, 0, 0, DType::uint8, 1, 8, 0, 0, to, 0};
    }

    const std::vector<TensorInfo> tensors_{{"a", {24}, DType::uint8}, {"b", {16}, DType::uint8}};
    const TransferPlan plan_{{piece(1, 8), piece(0, 0), piece(0, 16), piece(1, 0), piece(0, 8)},
                             {0, 2, 2, 5}};
    std::vector<ops::Checksum> checksums_;
    VersionProgress progress_;
};

TEST_F(VersionProgressTest, BucketsInAnyOrderMakeAVersionWhole) {
    std::vector<std::size_t> order{0, 1, 2};
    const ops::Checksum a[] = {checksums_[1], checksums_[2], checksums_[4]};  // in the plan's order
    const ops::Checksum b[] = {checksums_[0], checksums_[3]};
    for (std::int64_t version = 1; std::next_permutation(order.begin(), order.end()); ++version) {
        progress_.start(version);
        EXPECT_FALSE(progress_.started());
        for (const std::size_t bucket : order) {
            EXPECT_THAT(refusal([&] { progress_.require_whole({}); }), HasSubstr("is not whole: bucket "));
            progress_.add_bucket(static_cast<int>(bucket), of_bucket(bucket));
        }
        progress_.require_whole(manifest_by_hand(version, tensors_, {ops::combine(a), ops::combine(b)}));
    }
}

TEST_F(VersionProgressTest, ABucketOnceAndWithAllItsChecksums) {
    progress_.start(3);
    progress_.add_bucket(0, of_bucket(0));
    EXPECT_THAT(refusal([&] { progress_.add_bucket(0, of_bucket(0)); }),
                HasSubstr("bucket 0 arrived before in version 3"));
    EXPECT_THAT(refusal([&] { progress_.add_bucket(2, of_bucket(0)); }),
                HasSubstr("bucket 2: 2 checksums for 3 transfers"));
    EXPECT_THAT(refusal([&] { progress_.add_bucket(1, of_bucket(0)); }),
                HasSubstr("bucket 1: 2 checksums for 0 transfers"));
    EXPECT_THAT(refusal([&] { progress_.add_bucket(3, of_bucket(0)); }), HasSubstr("bucket 3 of 3"));
    EXPECT_THAT(refusal([&] { progress_.add_bucket(-1, of_bucket(0)); }), HasSubstr("bucket -1 of 3"));
    EXPECT_THAT(refusal([&] { progress_.add_bucket(std::int64_t{1} << 40, {}); }), HasSubstr("of 3"));
    progress_.add_bucket(1, of_bucket(1));
    EXPECT_THAT(refusal([&] { progress_.require_whole({}); }),
                HasSubstr("version 3 is not whole: bucket 2 (tensor 'a' and what follows) has not arrived"));
    progress_.start(4);
    progress_.add_bucket(0, of_bucket(0));  // a new version knows nothing of the last one
}

TEST_F(VersionProgressTest, ChangesMustBeVerifiedAndComeOnce) {
    progress_.start(3);
    const DeltaEntry entries[] = {{0, 0, 0, 0, {}}, {4, 0, 0, 0, {}}};
    progress_.add_changes(0, entries);
    EXPECT_THAT(refusal([&] {
                    progress_.add_changes(7, {entries + 1, 1});
                }),
                HasSubstr("bucket 7: transfer 4 of tensor 'a' changes twice"));
    EXPECT_THAT(refusal([&] { progress_.require_whole({}); }), HasSubstr("what came was not verified"));
    const DeltaEntry unknown{5, 0, 0, 0, {}};
    EXPECT_THAT(refusal([&] { progress_.add_changes(1, {&unknown, 1}); }), HasSubstr("transfer 5 of 5"));
    EXPECT_THAT(refusal([&] { progress_.add_all("verify", of_bucket(2)); }),
                HasSubstr("verify: 3 checksums for 5 transfers"));
    progress_.add_all("verify", checksums_);
    progress_.require_whole(manifest_checksum(3, tensors_, plan_, checksums_));
    EXPECT_THAT(refusal([&] { progress_.require_whole(manifest_checksum(4, tensors_, plan_, checksums_)); }),
                HasSubstr("the manifest of version 3 is "));
    for (const auto& late : std::vector<std::function<void()>>{
             [&] { progress_.add_bucket(0, of_bucket(0)); }, [&] { progress_.add_changes(0, entries); },
             [&] { progress_.add_all("adopt", checksums_); }}) {
        EXPECT_THAT(refusal(late), HasSubstr("after version 3 was verified or adopted as a whole"));
    }
    progress_.start(4);
    progress_.add_changes(0, entries);
}

// The manifest of a plan against one made naively: for each tensor, its transfers in order.
TEST(Manifest, OfAPlanCombinesEachTensorsTransfersInTheirOrder) {
    std::mt19937 random(5);
    for (int round = 0; round < 50; ++round) {
        std::vector<TensorInfo> tensors;
        for (int t = 0; t < 7; ++t) tensors.push_back({"t" + std::to_string(t), {t}, DType::float32});
        TransferPlan plan;
        std::vector<ops::Checksum> all;
        std::vector<std::vector<ops::Checksum>> parts(7);
        for (std::size_t i = random() % 40; i > 0; --i) {
            const std::uint32_t tensor = static_cast<std::uint32_t>(random() % 7);
            plan.transfers.push_back({tensor, 0, 0, DType::float32, 1, 1, 0, 0, 0, 0});
            all.push_back({random(), random()});
            parts[tensor].push_back(all.back());
        }
        plan.first.push_back(plan.transfers.size());
        std::vector<ops::Checksum> checksums;
        for (const auto& part : parts) checksums.push_back(ops::combine(part));
        ASSERT_EQ(manifest_checksum(round, tensors, plan, all), manifest_by_hand(round, tensors, checksums));
        if (all.size() < 2) continue;
        EXPECT_THROW(manifest_checksum(round, tensors, plan, std::span(all).subspan(1)), InvalidArgument);
        EXPECT_THROW(manifest_checksum(round, {tensors[0]}, {{{3}}, {0, 1}}, {all.data(), 1}),
                     InvalidArgument);
    }
}

TEST(Manifest, DependsOnEverythingThatItCovers) {
    const std::vector<TensorInfo> tensors{{"a", {2, 3}, DType::float32}, {"b", {4}, DType::bfloat16}};
    const std::vector<ops::Checksum> checksums{{1, 2}, {3, 4}};
    TransferPlan plan;  // a transfer a tensor
    for (std::uint32_t t = 0; t < 2; ++t)
        plan.transfers.push_back({t, 0, 0, tensors[t].dtype, 1, 1, 0, 0, 0, 0});
    plan.first.push_back(2);
    const auto manifest = [&](std::int64_t version, const std::vector<TensorInfo>& of,
                              const std::vector<ops::Checksum>& transfers) {
        return manifest_checksum(version, of, plan, transfers);
    };
    const ops::Checksum base = manifest(5, tensors, checksums);
    EXPECT_EQ(base, manifest(5, tensors, checksums));
    EXPECT_NE(base, manifest(6, tensors, checksums));
    EXPECT_NE(base, manifest(5, {tensors[1], tensors[0]}, {checksums[1], checksums[0]}));
    EXPECT_NE(base, manifest(5, tensors, {{1, 2}, {3, 5}}));
    auto other = tensors;
    other[0].shape = {3, 2};
    EXPECT_NE(base, manifest(5, other, checksums));
    other = tensors;
    other[1].dtype = DType::float32;
    EXPECT_NE(base, manifest(5, other, checksums));
    other = tensors;
    other[1].name.push_back('c');
    EXPECT_NE(base, manifest(5, other, checksums));
}

}  // namespace
}  // namespace tandem::engine
