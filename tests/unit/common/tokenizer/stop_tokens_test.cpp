// The tokens that end a text, from every file that names them.
#include "common/tokenizer/stop_tokens.h"

#include <gmock/gmock.h>

#include "common/error.h"
#include "tests/unit/common/tokenizer/directory.h"

namespace tandem::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kStopVocabulary = 20;

std::string refused_stops(const Directory& directory) {
    try {
        stop_tokens(directory.path(), {}, kStopVocabulary);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(StopTokens, AreTheUnionOfAllFiles) {
    Directory directory;
    directory.write("generation_config.json", R"({"eos_token_id": [3, 0]})");
    directory.write("config.json", R"({"eos_token_id": 3})");
    const auto stops = stop_tokens(directory.path(), {.end_of_turn = 14, .eos = 0}, kStopVocabulary);
    EXPECT_THAT(ids_of(stops), ElementsAre(14, 0, 3));
    EXPECT_EQ(to_string(stops),
              "14 (chat template), 0 (tokenizer_config.json, generation_config.json), "
              "3 (generation_config.json, config.json)");
    EXPECT_EQ(to_string({{3, "config.json"}}, [](std::int32_t) { return "<e>"; }), "3 <e> (config.json)");
    EXPECT_THAT(stop_tokens(Directory().path(), {}, kStopVocabulary), ElementsAre());
}

TEST(StopTokens, NullAndAbsentKeysSayNothing) {
    Directory directory;
    for (const char* nothing : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": []})"}) {
        directory.write("generation_config.json", nothing).write("config.json", nothing);
        EXPECT_THAT(stop_tokens(directory.path(), {}, kStopVocabulary), ElementsAre()) << nothing;
    }
}

TEST(StopTokens, WhatIsNoIdIsRefusedByFileAndKey) {
    for (const char* file : {"generation_config.json", "config.json"}) {
        for (const char* bad : {"\"2\"", "2.0", "true", "[1, null]", "[[1]]", "{}"}) {
            Directory directory;
            directory.write(file, std::string("{\"eos_token_id\": ") + bad + "}");
            EXPECT_THAT(refused_stops(directory), HasSubstr(std::string(file) + ": eos_token_id: ")) << bad;
        }
        Directory directory;
        directory.write(file, "version https://git-lfs.github.com/spec/v1\n");
        EXPECT_THAT(refused_stops(directory), HasSubstr(std::string(file) + ": is a Git LFS pointer"));
    }
}

TEST(StopTokens, IdsOutsideTheVocabularyAreLeftOutOrRefused) {
    Directory directory;
    directory.write("generation_config.json", R"({"eos_token_id": [20, -1, 99999999999, 5]})");
    EXPECT_THAT(ids_of(stop_tokens(directory.path(), {.end_of_turn = 20, .eos = {}}, kStopVocabulary)),
                ElementsAre(5));
    directory.write("config.json", R"({"eos_token_id": 20})");
    EXPECT_THAT(refused_stops(directory),
                HasSubstr("config.json: eos_token_id: 20 is no token of a vocabulary of 20"));
}

TEST(StopTokens, TheTemplateNamesTheEndOfATurn) {
    const auto ends = [](const std::string& chat_template, const std::string& eos) {
        Directory directory;
        directory.write("tokenizer.json", small_tokenizer().dump());
        directory.write("tokenizer_config.json",
                        nlohmann::json{{"chat_template", chat_template}, {"eos_token", eos}}.dump());
        return ends_of(Tokenizer::from_directory(directory.path()), directory.path());
    };
    const std::string all = "{% for m in messages %}{{ m.content }}";
    EXPECT_EQ(ends(all + "<s>\n{% endfor %}", "o").end_of_turn, 0);
    EXPECT_EQ(ends(all + "<s>\n{% endfor %}", "o").eos, 4);
    EXPECT_EQ(ends(all + "hello{% endfor %}", "o").end_of_turn, std::nullopt);  // a word like any other
    EXPECT_EQ(ends(all + "{% endfor %}", "o").end_of_turn, std::nullopt);
    EXPECT_EQ(ends("{{ raise_exception('no') }}", "o").end_of_turn, std::nullopt);
    EXPECT_EQ(ends("{% broken", "o").end_of_turn, std::nullopt);
    EXPECT_EQ(ends(all + "<s>{% endfor %}", "<none>").eos, std::nullopt);
}

}  // namespace
}  // namespace tandem::tokenizer
