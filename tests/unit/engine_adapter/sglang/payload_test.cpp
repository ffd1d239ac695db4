// What SGLang is sent as tensors. That its own code opens the same is shown by tests/peers/sglang_payload.sh.
#include "engine_adapter/sglang/payload.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "engine_adapter/torch_pickle/pickle.h"
#include "tests/support/error_of.h"
#include "tests/support/unpickle.h"

namespace tandem::engine {
namespace {

using nlohmann::json;
using test::unpickle;
using testing::HasSubstr;

json reopened(const std::string& value) {
    return unpickle(pickle::document(value));
}

// As Python's pickle.dumps(…, protocol=4) writes them, less the frames and the memo.
TEST(Pickle, BytesAreThoseOfPython) {
    using std::string_literals::operator""s;
    EXPECT_EQ(pickle::document(pickle::none()), "\x80\x04N."s);
    EXPECT_EQ(pickle::integer(7), "K\x07"s);
    EXPECT_EQ(pickle::integer(-2), "J\xfe\xff\xff\xff"s);
    EXPECT_EQ(pickle::integer(std::int64_t{1} << 40), "\x8a\x08\x00\x00\x00\x00\x00\x01\x00\x00"s);
    EXPECT_EQ(pickle::text("ab"), "\x8c\x02"s + "ab");
    EXPECT_EQ(pickle::bytes("ab"), "C\x02"s + "ab");
    EXPECT_EQ(pickle::tuple({pickle::none(), pickle::boolean(true)}), "N\x88\x86"s);
    EXPECT_EQ(pickle::list({pickle::none()}), "](Ne"s);
    EXPECT_EQ(pickle::dict({{pickle::text("a"), pickle::none()}}), "}(\x8c\x01"s + "aNu");
    EXPECT_EQ(pickle::call(pickle::global("torch", "Size"), {pickle::tuple({})}),
              "\x8c\x05torch\x8c\x04Size\x93)\x85R"s);
}

TEST(Pickle, ValuesOfAllSizesComeBack) {
    for (const std::int64_t value :
         {std::int64_t{0}, std::int64_t{255}, std::int64_t{256}, std::int64_t{-1}, std::int64_t{1} << 31,
          std::int64_t{-1} << 40, std::numeric_limits<std::int64_t>::max()})
        EXPECT_EQ(reopened(pickle::integer(value)), json(value));
    for (const std::size_t size : std::vector<std::size_t>{0, 1, 255, 256, 70000}) {
        const std::string content(size, 'x');
        EXPECT_EQ(reopened(pickle::text(content)), json(content));
        EXPECT_EQ(reopened(pickle::bytes(content)).get_binary().size(), size);
    }
    for (const std::size_t count : std::vector<std::size_t>{0, 1, 2, 3, 4, 1000}) {
        const pickle::Values values(count, pickle::integer(5));
        EXPECT_EQ(reopened(pickle::tuple(values)), json(std::vector<int>(count, 5)));
        EXPECT_EQ(reopened(pickle::list(values)), json(std::vector<int>(count, 5)));
    }
    EXPECT_EQ(reopened(pickle::dict({})), json::object());
}

const std::vector<BucketTensor> kTensors{{"a", {2, 3}, DType::bfloat16, 8}, {"b", {}, DType::float32, 20}};

TEST(FlattenedBucket, SaysWhereEachTensorLies) {
    const json opened = unpickle(flattened_bucket(TorchSharedFile{"/x", 24}, kTensors));
    const json& first = opened["metadata"][0];
    EXPECT_EQ(first["call"], "sglang.srt.weight_sync.tensor_bucket.FlattenedTensorMetadata");
    const json size = {{"call", "torch.Size"}, {"arguments", {{2, 3}}}};
    EXPECT_EQ(first["arguments"], json({"a", size, {{"global", "torch.bfloat16"}}, 8, 20, 12}));
    EXPECT_EQ(opened["metadata"][1]["arguments"][1]["arguments"], json::array({json::array()}));
    EXPECT_EQ(opened["metadata"][1]["arguments"][4], 24);
    const json& flat = opened["flattened_tensor"];
    EXPECT_EQ(flat["call"], "torch.multiprocessing.reductions.rebuild_tensor");
    const json& untyped = flat["arguments"][1]["arguments"][0];
    EXPECT_EQ(untyped["call"], "torch.multiprocessing.reductions.rebuild_storage_filename");
    EXPECT_EQ(untyped["arguments"][2].get_binary(), json::binary({'/', 'x'}).get_binary());
    EXPECT_EQ(untyped["arguments"][3], 24);
}

TEST(FlattenedBucket, OfAGpuIsGivenByItsHandle) {
    const TorchCudaMemory memory{"uuid", std::string(64, 'h'), 24, 512, "/counters", 2};
    const json flat = unpickle(flattened_bucket(memory, kTensors))["flattened_tensor"];
    EXPECT_EQ(flat["call"], "torch.multiprocessing.reductions.rebuild_cuda_tensor");
    const json& arguments = flat["arguments"];
    ASSERT_EQ(arguments.size(), 15u);
    EXPECT_EQ(arguments[6], "uuid");
    EXPECT_EQ(arguments[7].get_binary().size(), 64u);
    EXPECT_EQ(arguments[8], 24);
    EXPECT_EQ(arguments[9], 512);
    EXPECT_EQ(arguments[12], 2);
    EXPECT_EQ(arguments[14], false);
    EXPECT_THAT(test::error_of([&] {
                    flattened_bucket(TorchCudaMemory{"uuid", "short", 24, 0, "", 0}, kTensors);
                }),
                HasSubstr("handle of 5 bytes"));
}

TEST(FlattenedBucket, RefusesWhatTorchCouldNotView) {
    const TorchSharedFile file{"/x", 24};
    const std::vector<BucketTensor> outside{{"a", {2, 3}, DType::bfloat16, 14}};
    EXPECT_THAT(test::error_of([&] { flattened_bucket(file, outside); }),
                HasSubstr("a is not within the 24"));
    const std::vector<BucketTensor> askew{{"a", {2}, DType::float32, 6}};
    EXPECT_THAT(test::error_of([&] { flattened_bucket(file, askew); }), HasSubstr("begins at byte 6"));
}

TEST(FlattenedBucket, EachRankGetsThePickleInBase64) {
    for (const std::size_t size : std::vector<std::size_t>{1, 2, 3, 4, 257}) {
        std::string pickle;
        for (std::size_t i = 0; i < size; ++i) pickle += static_cast<char>(i * 37 + 251);
        const json body = json::parse(tensor_update_body(pickle, 3));
        ASSERT_EQ(body["serialized_named_tensors"].size(), 3u);
        for (const json& one : body["serialized_named_tensors"])
            EXPECT_EQ(test::from_base64(one.get<std::string>()), pickle);
    }
}

}  // namespace
}  // namespace tandem::engine
