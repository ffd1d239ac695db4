// Chat templates through the port: where they are found, and the tokens that they need.
#include "common/error.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/unit/common/tokenizer/directory.h"

namespace tandem::tokenizer {
namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

std::string config(const std::string& more) {
    return "{" + more + "\"chat_template\": " + nlohmann::json(kTemplate).dump() + "}";
}

std::string problem(const Directory& directory) {
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    try {
        tokenizer.check_chat_template();
    } catch (const ConfigError& error) {
        EXPECT_THROW(tokenizer.apply_chat_template({{"user", "x"}}, true), ConfigError);
        return error.what();
    }
    return "";
}

TEST(Chat, WritesTheConversation) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    directory.write("tokenizer_config.json", config("\"bos_token\": \"<s>\","));
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    EXPECT_TRUE(tokenizer.has_chat_template());
    EXPECT_EQ(tokenizer.apply_chat_template({{"user", "hi"}, {"assistant", "ho"}}, true),
              "<s>user: hi\nassistant: ho\nassistant:");
    EXPECT_EQ(tokenizer.apply_chat_template({{"user", "\xFF"}}, false), "<s>user: \uFFFD\n");
}

TEST(Chat, ATemplateFileGoesBeforeTheConfig) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    directory.write("tokenizer_config.json", config(""));
    directory.write("chat_template.jinja", "file {{ messages[0].content }}");
    EXPECT_EQ(Tokenizer::from_directory(directory.path()).apply_chat_template({{"user", "x"}}, true),
              "file x");
    directory.write(
        "tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
    EXPECT_EQ(Tokenizer::from_directory(directory.path()).apply_chat_template({{"user", "x"}}, true),
              "file x");
}

TEST(Chat, TokensThatTheTemplateNeedsAreNamed) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    EXPECT_THAT(problem(directory), testing::HasSubstr("tokenizer_config.json: chat_template: is missing"));
    directory.write("tokenizer_config.json", config(""));
    EXPECT_THAT(problem(directory), testing::HasSubstr("tokenizer_config.json: bos_token: is missing"));
    directory.write("tokenizer_config.json", config("\"bos_token\": \"<begin>\","));
    EXPECT_THAT(problem(directory), testing::HasSubstr("bos_token: \"<begin>\" is not in the vocabulary"));
    directory.write("special_tokens_map.json", R"({"bos_token": "<s>"})");
    directory.write("tokenizer_config.json", config(""));
    EXPECT_EQ(problem(directory), "");
    directory.write("chat_template.jinja", "a\n{% endfor %}");
    EXPECT_THAT(problem(directory), testing::HasSubstr("chat_template.jinja: chat_template: line 2"));
}

TEST(Chat, RefusalsOfTheTemplateAreTheCallersFault) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    directory.write("chat_template.jinja", "{{ raise_exception('roles must alternate') }}");
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    EXPECT_THROW(tokenizer.apply_chat_template({{"user", "x"}}, true), InvalidArgument);
    EXPECT_EQ(tokenizer.encode("hello", false), (std::vector<std::int32_t>{10}));
}

}  // namespace
}  // namespace tandem::tokenizer
