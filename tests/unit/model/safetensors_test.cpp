// safetensors: round trips, sharded directories, and every way in which a file can lie about itself.
#include "common/model/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/error.h"
#include "tests/unit/model/temporary_directory.h"

namespace tandem::model {
namespace {

using nlohmann::json;

std::string file_bytes(const std::string& header, std::size_t data_bytes) {
    std::string text(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(text.data(), &length, 8);
    text += header;
    for (std::size_t i = 0; i < data_bytes; ++i) text.push_back(static_cast<char>(i));
    return text;
}

std::string open_error(const TemporaryDirectory& directory) {
    try {
        Safetensors::open(directory.path());
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

std::string header_error(const json& header, std::size_t data_bytes) {
    const TemporaryDirectory directory;
    directory.write("model.safetensors", file_bytes(header.dump(), data_bytes));
    return open_error(directory);
}

json entry(const char* dtype, const json& shape, const json& begin, const json& end) {
    return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

TEST(Safetensors, RoundTripOfEveryDtype) {
    const TemporaryDirectory directory;
    std::vector<float> floats(6);
    std::iota(floats.begin(), floats.end(), 0.5f);
    const std::vector<bfloat16> halves = {bfloat16(1.5f), bfloat16(-2.0f), bfloat16(3.25f)};
    const std::vector<std::int64_t> longs = {1, -2};
    const std::vector<std::uint8_t> bytes = {7};
    const Tensor nothing = Tensor::empty({0, 4}, DType::float32, "test");
    write_safetensors(directory.file("model.safetensors"),
                      {{"byte", Tensor::from<std::uint8_t>(bytes, {1})},
                       {"half", Tensor::from<bfloat16>(halves, {3})},
                       {"float", Tensor::from<float>(floats, {2, 3})},
                       {"nothing", nothing},
                       {"long", Tensor::from<std::int64_t>(longs, {2})}});
    const Safetensors read = Safetensors::open(directory.path());
    EXPECT_THAT(read.names(), testing::UnorderedElementsAre("byte", "half", "float", "nothing", "long"));
    EXPECT_EQ(read.tensor("float").shape(), (Shape{2, 3}));
    EXPECT_EQ(read.tensor("float").to_vector<float>(), floats);
    EXPECT_EQ(read.tensor("half").to_vector<bfloat16>(), halves);
    EXPECT_EQ(read.tensor("long").to_vector<std::int64_t>(), longs);
    EXPECT_EQ(read.tensor("byte").to_vector<std::uint8_t>(), bytes);
    EXPECT_EQ(read.tensor("nothing").numel(), 0);
    EXPECT_TRUE(read.contains("half"));
    EXPECT_FALSE(read.contains("none"));
    EXPECT_THROW(read.tensor("none"), ConfigError);
}

TEST(Safetensors, WritingThroughAMappedTensorLeavesTheFileAlone) {
    const TemporaryDirectory directory;
    const std::vector<float> values = {1, 2, 3};
    write_safetensors(directory.file("model.safetensors"), {{"a", Tensor::from<float>(values, {3})}});
    const std::string before = directory.read("model.safetensors");
    Safetensors read = Safetensors::open(directory.path());
    read.tensor("a").data<float>()[0] = 9;
    EXPECT_EQ(directory.read("model.safetensors"), before);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1)
        << "a temporary was left";
}

TEST(Safetensors, UnalignedDataIsCopied) {
    const TemporaryDirectory directory;
    std::string header = json{{"a", entry("F32", {2}, 0, 8)}}.dump();
    while (header.size() % 4 != 3) header.push_back(' ');
    directory.write("model.safetensors", file_bytes(header, 8));
    const Tensor a = Safetensors::open(directory.path()).tensor("a");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.raw()) % 4, 0u);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(static_cast<int>(a.raw()[i]), i);
}

TEST(Safetensors, ShardedDirectory) {
    const TemporaryDirectory directory;
    const std::vector<float> one = {1}, two = {2};
    write_safetensors(directory.file("one.safetensors"), {{"a", Tensor::from<float>(one, {1})}});
    write_safetensors(directory.file("two.safetensors"), {{"b", Tensor::from<float>(two, {1})}});
    json index = {{"metadata", json::object()},
                  {"weight_map", {{"a", "one.safetensors"}, {"b", "two.safetensors"}}}};
    directory.write("model.safetensors.index.json", index.dump());
    const Safetensors read = Safetensors::open(directory.path());
    EXPECT_EQ(read.tensor("a").to_vector<float>(), one);
    EXPECT_EQ(read.tensor("b").to_vector<float>(), two);

    index["weight_map"]["c"] = "two.safetensors";
    directory.write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(directory), testing::AllOf(testing::HasSubstr("two.safetensors: c: missing")));
    index["weight_map"]["c"] = "three.safetensors";
    directory.write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(directory), testing::HasSubstr("three.safetensors: cannot be opened"));
    index["weight_map"]["c"] = "../three.safetensors";
    directory.write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(directory), testing::HasSubstr("c: must name a file of the same directory"));
}

TEST(Safetensors, EveryTruncationIsRefused) {
    const TemporaryDirectory directory;
    const std::vector<float> values = {1, 2, 3, 4};
    write_safetensors(directory.file("model.safetensors"),
                      {{"a", Tensor::from<float>(values, {4})}, {"b", Tensor::from<float>(values, {2, 2})}});
    const std::string whole = directory.read("model.safetensors");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        directory.write("model.safetensors", whole.substr(0, length));
        EXPECT_THAT(open_error(directory), testing::HasSubstr("model.safetensors: ")) << "at " << length;
    }
    directory.write("model.safetensors", whole.substr(0, whole.size() - 1));
    EXPECT_THAT(open_error(directory), testing::HasSubstr("b: data_offsets [16, 32] lie outside"));
    directory.write("model.safetensors", whole + "x");
    EXPECT_THAT(open_error(directory), testing::HasSubstr("1 bytes after the last tensor"));
}

TEST(Safetensors, InconsistentHeadersAreRefused) {
    using testing::HasSubstr;
    EXPECT_THAT(header_error({{"a", entry("F32", {2}, 0, 8)}}, 8), "accepted");
    EXPECT_THAT(header_error({{"a", entry("F32", {3}, 0, 8)}}, 8), HasSubstr("a: [3] of F32 needs 12 bytes"));
    EXPECT_THAT(header_error({{"a", entry("F16", {2}, 0, 4)}}, 4), HasSubstr("a: dtype \"F16\""));
    EXPECT_THAT(header_error({{"a", entry("F32", {-2}, 0, 8)}}, 8), HasSubstr("a: shape [-2]"));
    EXPECT_THAT(header_error({{"a", entry("F32", "x", 0, 8)}}, 8), HasSubstr("a: has no shape"));
    EXPECT_THAT(header_error({{"a", entry("F32", {1 << 30, 1 << 30, 1 << 30}, 0, 8)}}, 8),
                HasSubstr("overflows"));
    EXPECT_THAT(header_error({{"a", entry("F32", {2}, 8, 0)}}, 8), HasSubstr("a: data_offsets"));
    EXPECT_THAT(header_error({{"a", entry("F32", {2}, 0, -8)}}, 8), HasSubstr("a: data_offsets"));
    EXPECT_THAT(header_error({{"a", {{"dtype", "F32"}, {"shape", {2}}}}}, 8), HasSubstr("a: data_offsets"));
    EXPECT_THAT(header_error({{"a", {{"shape", {2}}}}}, 8), HasSubstr("a: has no dtype"));
    EXPECT_THAT(header_error({{"a", 5}}, 8), HasSubstr("a: header entry is not an object"));
    EXPECT_THAT(header_error({{"a", entry("F32", {2}, 0, 8)}, {"b", entry("F32", {2}, 4, 12)}}, 12),
                HasSubstr("b: overlaps"));
    EXPECT_THAT(header_error({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 8, 12)}}, 12),
                HasSubstr("b: leaves a hole"));
    EXPECT_THAT(header_error(json::array({1}), 0), HasSubstr("not a JSON object"));
}

TEST(Safetensors, BadBytesAreRefused) {
    const TemporaryDirectory directory;
    EXPECT_THAT(open_error(directory), testing::HasSubstr("has neither model.safetensors nor"));
    directory.write("model.safetensors", file_bytes("{not json", 0));
    EXPECT_THAT(open_error(directory), testing::HasSubstr("malformed header"));
    directory.write("model.safetensors", std::string(64, '\xff'));
    EXPECT_THAT(open_error(directory),
                testing::HasSubstr("header of 18446744073709551615 bytes in a file of 64"));
}

}  // namespace
}  // namespace tandem::model
