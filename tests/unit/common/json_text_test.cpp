// JSON of strangers: what is within the limits is parsed, all else is said where it is.
#include "common/json_text.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "tests/support/error_of.h"

namespace tandem {
namespace {

using test::error_of;
using ::testing::HasSubstr;

std::string refusal(const std::string& text, const JsonLimits& limits = {}) {
    return error_of([&] { parse_json_text(text, limits); });
}

TEST(JsonText, IsParsedWithinItsLimits) {
    EXPECT_EQ(parse_json_text(R"({"a": [1, "[[[", {}]})"),
              nlohmann::json({{"a", {1, "[[[", nlohmann::json::object()}}}));
    EXPECT_EQ(parse_ordered_json_text(R"({"b": 1, "a": 2})").dump(), R"({"b":1,"a":2})");
    const std::string at_limit = std::string(64, '[') + std::string(64, ']');
    EXPECT_EQ(refusal(at_limit), "");
    EXPECT_EQ(refusal("[" + at_limit + "]"), "is nested deeper than 64 levels");
    EXPECT_EQ(refusal("[1,2,3]", {.values = 4}), "");
    EXPECT_EQ(refusal("[1,2,3,4]", {.values = 4}), "holds more than 4 values");
    const std::string many = "[" + std::string(2'000'000, '1') + "]";
    EXPECT_EQ(refusal(std::string(2'000'000, '['), any_values(many)), "is nested deeper than 64 levels");
}

TEST(JsonText, WhatIsNoUtf8IsReplacedWhereItIsWritten) {
    EXPECT_EQ(text_of_json(nlohmann::json{{"path", "/models/\xff\xfe"}}),
              "{\"path\":\"/models/\xef\xbf\xbd\xef\xbf\xbd\"}");
    EXPECT_EQ(text_of_json(nlohmann::ordered_json{{"b", "\xc3"}, {"a", "\xc3\xa9"}}, 1),
              "{\n \"b\": \"\xef\xbf\xbd\",\n \"a\": \"\xc3\xa9\"\n}");
}

TEST(JsonText, SaysWhereItIsNone) {
    EXPECT_THAT(refusal("{\"a\": 1,\n \"b\": 2,}"), HasSubstr("is not valid JSON at line 2, column 9: "));
    EXPECT_THAT(refusal("[\"\xff\"]"), HasSubstr("line 1, column "));
    EXPECT_THAT(refusal("[\"\\ud800\"]"), HasSubstr("line 1, column "));
    EXPECT_THAT(refusal("\n\n[1e999]"), HasSubstr("at line 3, column 2: a number that no double holds"));
    EXPECT_THAT(refusal(""), HasSubstr("line 1, column 1"));
    EXPECT_THAT(refusal("{} {}"), HasSubstr("line 1, column 4"));
    EXPECT_THAT(refusal(std::string(1'000'000, 'x')).size(), ::testing::Lt(300u));
}

TEST(JsonText, IsNothingWhereItIsNone) {
    EXPECT_TRUE(json_text_or_nothing("{").is_discarded());
    EXPECT_TRUE(json_text_or_nothing(std::string(1'000'000, '[')).is_discarded());
    EXPECT_TRUE(json_text_or_nothing("1e999").is_discarded());
    EXPECT_EQ(json_text_or_nothing("[1]"), nlohmann::json::array({1}));
}

TEST(JsonNumbers, AreWholeAndWithinTheirRange) {
    using nlohmann::json;
    const auto read = [](const char* text) { return integer_of(json::parse(text), -5, 100); };
    EXPECT_EQ(read("-5"), -5);
    EXPECT_EQ(read("100"), 100);
    for (const char* text :
         {"-6", "101", "5.0", "5.5", "1e2", "55000002487502487771124877711", "18446744073709551615",
          "-9223372036854775808", "null", "\"5\"", "[5]", "{}", "true"})
        EXPECT_THROW(read(text), BadInput) << text;
    EXPECT_EQ(integer_of(json::parse("9223372036854775807")), std::numeric_limits<std::int64_t>::max());
    EXPECT_THROW(integer_of(json::parse("9223372036854775808")), BadInput);
    EXPECT_THROW(integer_of(-1), BadInput);

    EXPECT_EQ(token_ids_of(json::parse("[0, 2147483647]")), (std::vector<std::int32_t>{0, 2147483647}));
    for (const char* text :
         {"[2147483648]", "[-1]", "[1.5]", "5", "null", "[[1]]", "[55000002487502487771124877711, 2]"})
        EXPECT_THROW(token_ids_of(json::parse(text)), BadInput) << text;
}

}  // namespace
}  // namespace tandem
