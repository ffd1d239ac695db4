// A tokenizer.json that makes much of little is refused before memory is gone; what real ones make passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/error.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/unit/common/tokenizer/directory.h"

namespace tandem::tokenizer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json sequence(const std::string& key, const json& part, std::size_t times) {
    return {{"type", "Sequence"}, {key, json(times, part)}};
}

json replace(const std::string& pattern, const std::string& content) {
    return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

Tokenizer with(const std::string& part, const json& value) {
    json file = small_tokenizer();
    file[part] = value;
    return Tokenizer::from_json(file.dump(), "tokenizer.json");
}

std::string why(const std::function<void()>& what) {
    try {
        what();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing";
}

TEST(Growth, ReplacementsOfALetterByAThousand) {
    const json thousand = replace("h", std::string(1000, 'h'));
    const std::string text(1, 'h');
    for (const std::size_t times : {2u, 6u, 100u}) {
        const Tokenizer normalizing = with("normalizer", sequence("normalizers", thousand, times));
        EXPECT_THAT(why([&] { normalizing.encode(text, false); }),
                    HasSubstr("normalizer: makes more than 65600 bytes of a text of 1 bytes"));
        const Tokenizer decoding = with("decoder", sequence("decoders", thousand, times));
        EXPECT_THAT(why([&] { decoding.decode({1}, false); }),
                    HasSubstr("decoder: makes more than 65600 bytes"));
    }
    // One replacement of a thousand letters makes a thousandfold as well.
    const Tokenizer once = with("normalizer", thousand);
    EXPECT_EQ(once.encode("h", false).size(), 1000u);
    EXPECT_THAT(why([&] { once.encode(std::string(1000, 'h'), false); }),
                HasSubstr("normalizer: makes more"));
    // Tokens of a decoder count together.
    const Tokenizer each = with("decoder", thousand);
    EXPECT_EQ(each.decode({1, 1}, false).size(), 2000u);
    EXPECT_THAT(why([&] { each.decode(std::vector<std::int32_t>(1000, 1), false); }),
                HasSubstr("decoder: makes more"));
}

TEST(Growth, BytesThatDoubleAndTextsThatAreSetBefore) {
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const Tokenizer doubling = with("pre_tokenizer", sequence("pretokenizers", bytes, 40));
    EXPECT_THAT(why([&] { doubling.encode("é", false); }), HasSubstr("pre_tokenizer: makes more than"));
    const Tokenizer prepending =
        with("normalizer", {{"type", "Prepend"}, {"prepend", std::string(70'000, 'h')}});
    EXPECT_THAT(why([&] { prepending.encode("h", false); }), HasSubstr("normalizer: makes more than"));
}

// The normal form that makes most of a character is 33 bytes of 3.
TEST(Growth, WhatRealOnesMakePasses) {
    json file = small_tokenizer();
    file["normalizer"] = {
        {"type", "Sequence"},
        {"normalizers", {{{"type", "NFKD"}}, replace(" ", "\u2581"), replace("\u2581", " ")}}};
    const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "tokenizer.json");
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "\uFDFA";
    EXPECT_EQ(why([&] { tokenizer.encode(text, true); }), "nothing");
}

TEST(Growth, TokensAndTemplates) {
    const auto loaded = [](const char* pointer, const json& value) {
        json file = small_tokenizer();
        file[json::json_pointer(pointer)] = value;
        return why([&] { Tokenizer::from_json(file.dump(), "tokenizer.json"); });
    };
    const std::string longest(65'536, 'x'), longer = longest + "x";
    json vocabulary = small_tokenizer()["model"]["vocab"];
    EXPECT_EQ(loaded("/added_tokens/1", {{"id", 14}, {"content", longest}}), "nothing");
    vocabulary[longer] = 13;
    EXPECT_THAT(loaded("/model/vocab", vocabulary), HasSubstr("model.vocab: a token has 65537 bytes"));
    EXPECT_THAT(loaded("/added_tokens/1/content", longer),
                HasSubstr("added_tokens[1].content: has 65537 bytes"));
    EXPECT_THAT(loaded("/model/end_of_word_suffix", longer),
                HasSubstr("model.end_of_word_suffix: has 65537"));

    json post = small_tokenizer()["post_processor"];
    post["special_tokens"]["<s>"]["ids"] = json(1000, 0);
    for (int i = 0; i < 64; ++i) post["single"].push_back(post["single"][0]);
    EXPECT_EQ(loaded("/post_processor", post), "nothing");
    post["single"].push_back(post["single"][0]);
    EXPECT_THAT(loaded("/post_processor", post), HasSubstr("more than 65536 tokens would be added"));
    post["single"].erase(65);
    EXPECT_THAT(loaded("/post_processor", sequence("processors", post, 2)),
                HasSubstr("more than 65536 tokens would be added"));
}

}  // namespace
}  // namespace tandem::tokenizer
