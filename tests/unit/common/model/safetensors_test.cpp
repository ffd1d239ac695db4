// safetensors: round trips, sharded directories, and every way in which a file can lie about itself.
#include "common/model/safetensors.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/error.h"
#include "common/model/mapped_files.h"
#include "tests/support/error_of.h"
#include "tests/unit/common/model/temporary_directory.h"

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

std::string open_error(const std::string& directory) {
    try {
        Safetensors::open(directory);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

std::string header_error(const json& header, std::size_t data_bytes) {
    const TemporaryDirectory directory;
    directory.write("model.safetensors", file_bytes(header.dump(), data_bytes));
    return open_error(directory.path());
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
    EXPECT_THAT(open_error(directory.path()),
                testing::AllOf(testing::HasSubstr("two.safetensors: c: missing")));
    index["weight_map"]["c"] = "three.safetensors";
    directory.write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("three.safetensors: cannot be opened"));
    for (const char* name : {"../three.safetensors", "/etc/passwd", "..", ".", ""}) {
        index["weight_map"]["c"] = name;
        directory.write("model.safetensors.index.json", index.dump());
        EXPECT_THAT(open_error(directory.path()),
                    testing::HasSubstr("c: must name a file of the same directory"));
    }
    index["weight_map"].erase("c");
    index["weight_map"]["a"] = "two.safetensors";
    directory.write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("two.safetensors: a: missing"));
    write_safetensors(directory.file("two.safetensors"),
                      {{"a", Tensor::from<float>(one, {1})}, {"b", Tensor::from<float>(two, {1})}});
    index["weight_map"]["a"] = "one.safetensors";
    directory.write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(directory.path()),
                testing::HasSubstr("two.safetensors: a: is here, although the index names one.safetensors"));
    index["weight_map"].erase("a");
    directory.write("model.safetensors.index.json", index.dump());
    EXPECT_THAT(open_error(directory.path()),
                testing::HasSubstr("two.safetensors: a: is not named by the index"));
    directory.write("model.safetensors.index.json",
                    R"({"weight_map": {"b": "one.safetensors", "b": "two.safetensors"}})");
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("index.json: b: is there twice"));
    for (const char* text : {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 3}})", "{"}) {
        directory.write("model.safetensors.index.json", text);
        EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("index.json: ")) << text;
    }
}

TEST(Safetensors, EveryTruncationIsRefused) {
    const TemporaryDirectory directory;
    const std::vector<float> values = {1, 2, 3, 4};
    write_safetensors(directory.file("model.safetensors"),
                      {{"a", Tensor::from<float>(values, {4})}, {"b", Tensor::from<float>(values, {2, 2})}});
    const std::string whole = directory.read("model.safetensors");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        directory.write("model.safetensors", whole.substr(0, length));
        EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("model.safetensors: "))
            << "at " << length;
    }
    directory.write("model.safetensors", whole.substr(0, whole.size() - 1));
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("b: data_offsets [16, 32] lie outside"));
    directory.write("model.safetensors", whole + "x");
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("1 bytes after the last tensor"));
}

TEST(Safetensors, AFileThatIsCutOffWhileItIsOpenReadsAsZerosAndIsNamed) {
    read_zeros_of_truncated_files();
    const TemporaryDirectory directory;
    const std::string file = directory.file("model.safetensors");
    Tensor written = Tensor::empty({5000}, DType::float32, "test");
    std::fill_n(reinterpret_cast<float*>(written.raw()), 5000, 1.5f);
    write_safetensors(file, {{"a", written}});
    const Safetensors files = Safetensors::open_file(file);
    const auto* const values = reinterpret_cast<const float*>(files.tensor("a").raw());
    EXPECT_EQ(values[4999], 1.5f);
    EXPECT_EQ(files.changed_file(), "");
    files.require_unchanged();
    std::filesystem::resize_file(file, 0);
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(values[i], 0.0f) << i;
    EXPECT_EQ(files.changed_file(), file);
    std::filesystem::remove(file);  // what was read are zeros all the same
    EXPECT_EQ(files.changed_file(), file);
    EXPECT_THAT(test::error_of([&] { files.require_unchanged(); }),
                testing::HasSubstr(file + " was written to"));
}

TEST(Safetensors, InconsistentHeadersAreRefused) {
    using testing::HasSubstr;
    EXPECT_THAT(header_error({{"a", entry("F32", {2}, 0, 8)}}, 8), "accepted");
    EXPECT_THAT(header_error({{"a", entry("F32", {3}, 0, 8)}}, 8), HasSubstr("a: [3] of F32 needs 12 bytes"));
    EXPECT_THAT(header_error({{"a", entry("F16", {2}, 0, 4)}}, 4), "accepted");
    EXPECT_THAT(header_error({{"a", entry("F64", {2}, 0, 16)}}, 16), HasSubstr("a: dtype \"F64\""));
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

TEST(Safetensors, ANameThatIsThereTwiceIsRefused) {
    const TemporaryDirectory directory;
    const std::string one = entry("F32", {1}, 0, 4).dump(), two = entry("F32", {1}, 4, 8).dump();
    directory.write("model.safetensors", file_bytes("{\"a\":" + one + ",\"a\":" + two + "}", 8));
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("model.safetensors: a: is there twice"));
    std::string deep(1000, '[');
    directory.write("model.safetensors", file_bytes("{\"a\":" + deep, 8));
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("nested more than 64 deep"));
}

TEST(Safetensors, HalfPrecisionIsExact) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto value = static_cast<float>(float16(static_cast<std::uint16_t>(bits)));
        const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
        double expected =
            exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
        if (exponent == 31) {
            expected = mantissa == 0 ? HUGE_VAL : std::nan("");
        }
        if ((bits & 0x8000u) != 0) expected = -expected;
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(value)) << bits;
        } else {
            ASSERT_EQ(static_cast<double>(value), expected) << bits;
            ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << bits;
        }
    }
}

TEST(Safetensors, RowsOfATensor) {
    const TemporaryDirectory directory;
    std::vector<float> values(15);
    std::iota(values.begin(), values.end(), 0.0f);
    write_safetensors(directory.file("model.safetensors"), {{"a", Tensor::from<float>(values, {5, 3})}});
    const Safetensors read = Safetensors::open(directory.path());
    EXPECT_EQ(read.rows("a", 1, 2).to_vector<float>(), (std::vector<float>{3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(read.rows("a", 5, 0).numel(), 0);
    EXPECT_EQ(read.shape("a"), (Shape{5, 3}));
    EXPECT_EQ(read.dtype("a"), DType::float32);
    EXPECT_EQ(read.file("a"), directory.file("model.safetensors"));
    read.rows("a", 1, 2).data<float>()[0] = 9;
    read.release("a");
    EXPECT_THROW(read.rows("a", 4, 2), InvalidArgument);
    EXPECT_THROW(read.rows("a", -1, 2), InvalidArgument);
    EXPECT_THROW(read.rows("b", 0, 1), ConfigError);
    EXPECT_EQ(Safetensors::open_file(directory.file("model.safetensors")).tensor("a").to_vector<float>(),
              values);
}

TEST(Safetensors, ReadingRowsTakesTheMemoryOfRowsAndReleaseGivesItBack) {
    const TemporaryDirectory directory;
    constexpr std::int64_t kRows = 4096, kColumns = 2048;  // 32 MiB
    write_safetensors(directory.file("model.safetensors"),
                      {{"a", Tensor::zeros({kRows, kColumns}, DType::float32, "test")}});
    const Safetensors read = Safetensors::open(directory.path());
    const auto resident = [] {  // pages of mapped files, bytes
        std::ifstream in("/proc/self/statm");
        std::size_t pages = 0, total = 0, shared = 0;
        in >> total >> pages >> shared;
        return static_cast<double>(pages) * 4096;
    };
    const auto sum = [](const Tensor& tensor) {
        float total = 0;
        for (const float value : tensor.values<float>()) total += value;
        return total;
    };
    const double before = resident();
    EXPECT_EQ(sum(read.rows("a", 0, kRows / 8)), 0);
    EXPECT_LT(resident() - before, 6.0 * (1 << 20));
    EXPECT_EQ(sum(read.tensor("a")), 0);
    EXPECT_GT(resident() - before, 30.0 * (1 << 20));
    read.release("a");
    EXPECT_LT(resident() - before, 1.0 * (1 << 20));
}

TEST(Safetensors, WhatIsNoSafetensorsFileIsNamed) {
    using std::string_literals::operator""s;
    std::string tar(1024, 'x');
    tar.replace(257, 5, "ustar");
    for (const auto& [bytes, kind] : std::vector<std::pair<std::string, std::string>>{
             {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 17\n",
              "is a Git LFS pointer, not the file: git lfs pull"},
             {"\n <!DOCTYPE html><html>", "is a page of HTML"},
             {"<HTML lang=en>", "is a page of HTML"},
             {"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "is XML"},
             {"PK\x03\x04 and so on", "is a zip archive"},
             {"\x1f\x8b\x08 and so on", "is compressed by gzip"},
             {tar, "is a tar archive"},
             {"\x80\x02}q\x01(X\x05", "is a pickle"},
             {"\x80\x02\x8a\nl\xfc\x9c", "is a pickle"},
             {"GGUF\x03\0\0\0"s, "is a GGUF file"},
             {std::string(4096, '\0'), "begins with zeros"},
             {"Entry not found", "it begins with \"Entry not found\""},
             {R"({"error": "gated"})", "it begins with \"{\"error\""}}) {
        const TemporaryDirectory directory;
        directory.write("model.safetensors", bytes);
        EXPECT_THAT(open_error(directory.path()),
                    testing::AllOf(testing::HasSubstr("model.safetensors: "), testing::HasSubstr(kind)));
        const TemporaryDirectory sharded;
        sharded.write("model.safetensors.index.json", R"({"weight_map": {"a": "one.safetensors"}})");
        sharded.write("one.safetensors", bytes);
        EXPECT_THAT(open_error(sharded.path()), testing::ContainsRegex("one.safetensors: (is|begins) "));
        if (bytes.starts_with("{")) continue;
        sharded.write("model.safetensors.index.json", bytes);
        EXPECT_THAT(open_error(sharded.path()),
                    testing::AllOf(testing::HasSubstr("index.json: "), testing::HasSubstr(kind)));
    }
}

TEST(Safetensors, WhatADirectoryHasInsteadOfWeightsIsNamed) {
    for (const auto& [file, words] : {std::pair("pytorch_model.bin", "pytorch_model.bin, a pickle"),
                                      std::pair("consolidated.00.pth", "a pickle"),
                                      std::pair("adapter_model.safetensors", "a LoRA adapter"),
                                      std::pair("model-00001-of-00002.safetensors", "which no index names"),
                                      std::pair("model.Q4_K.gguf", "of another format")}) {
        const TemporaryDirectory directory;
        directory.write(file, "x");
        EXPECT_THAT(open_error(directory.path()),
                    testing::AllOf(testing::HasSubstr("has neither model.safetensors nor"),
                                   testing::HasSubstr(words)));
    }
    const TemporaryDirectory directory;
    std::filesystem::create_symlink("../blobs/none", directory.file("model.safetensors"));
    EXPECT_THAT(open_error(directory.path()),
                testing::HasSubstr("model.safetensors is a link to ../blobs/none, which is not there"));
}

TEST(Safetensors, BadBytesAreRefused) {
    const TemporaryDirectory directory;
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("has neither model.safetensors nor"));
    EXPECT_THAT(open_error(directory.path() + "/none"), testing::HasSubstr("is not a directory"));
    directory.write("model.safetensors", file_bytes("{not json", 0));
    EXPECT_THAT(open_error(directory.path() + "/model.safetensors"),
                testing::HasSubstr("is not a directory"));
    EXPECT_THAT(open_error(directory.path()), testing::HasSubstr("malformed JSON"));
    directory.write("model.safetensors", std::string(64, '\xff'));
    EXPECT_THAT(open_error(directory.path()),
                testing::HasSubstr("header of 18446744073709551615 bytes in a file of 64"));
}

}  // namespace
}  // namespace tandem::model
