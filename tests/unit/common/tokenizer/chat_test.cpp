// Chat templates through the port: where they are found, and the tokens that they need.
#include "common/error.h"
#include "common/tokenizer/conversation.h"
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
    EXPECT_EQ(problem(directory), "");  // undefined, as in transformers
    directory.write("tokenizer_config.json", config("\"bos_token\": \"<begin>\","));
    EXPECT_THAT(problem(directory), testing::HasSubstr("bos_token: \"<begin>\" is not in the vocabulary"));
    directory.write("special_tokens_map.json", R"({"bos_token": "<s>"})");
    directory.write("tokenizer_config.json", config(""));
    EXPECT_EQ(problem(directory), "");
    directory.write("chat_template.jinja", "a\n{% endfor %}");
    EXPECT_THAT(problem(directory), testing::HasSubstr("chat_template.jinja: chat_template: line 2"));
}

std::string text(const Directory& directory, const std::string& conversation, const std::string& name = "") {
    auto read = Conversation::from_json(conversation);
    read.template_name = name;
    return Tokenizer::from_directory(directory.path()).apply_chat_template(read);
}

TEST(Chat, TokensThatNoFileNamesAreUndefined) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    directory.write(
        "chat_template.jinja",
        "{% if bos_token %}no{% endif %}[{{ bos_token }}{{ eos_token }}]{{ bos_token is defined }}");
    for (const char* tokens : {R"({"bos_token": null, "eos_token": "<s>"})", R"({"eos_token": "<s>"})"}) {
        directory.write("tokenizer_config.json", tokens);
        EXPECT_EQ(text(directory, "[]"), "[<s>]False");
    }
}

TEST(Chat, NamedTemplates) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    const std::string two =
        R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }}"}]})";
    directory.write("tokenizer_config.json", two);
    EXPECT_EQ(text(directory, R"({"messages": [], "tools": [{}]})"), "1");
    EXPECT_EQ(text(directory, R"({"messages": [], "tools": []})"), "0");
    EXPECT_EQ(text(directory, R"({"messages": [], "tools": null})"), "plain");
    EXPECT_EQ(text(directory, "[]"), "plain");
    EXPECT_EQ(text(directory, R"({"messages": [], "tools": [{}]})", "default"), "plain");
    EXPECT_THROW(text(directory, "[]", "rag"), BadInput);
    directory.write("tokenizer_config.json", R"({"chat_template": {"default": "plain", "rag": "r"}})");
    EXPECT_EQ(text(directory, "[]", "rag"), "r");
    EXPECT_EQ(text(directory, R"({"messages": [], "tools": [{}]})"), "plain");
}

// What lies in files goes before the whole of tokenizer_config.json.
TEST(Chat, TemplatesInFiles) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    directory.write("tokenizer_config.json", R"({"chat_template": "config"})");
    directory.write("additional_chat_templates/tool_use.jinja", "file with tools");
    EXPECT_EQ(text(directory, R"({"messages": [], "tools": [{}]})"), "file with tools");
    EXPECT_THROW(text(directory, "[]"), ConfigError);
    directory.write("chat_template.jinja", "file");
    EXPECT_EQ(text(directory, "[]"), "file");
    EXPECT_EQ(text(directory, R"({"messages": [], "tools": [{}]})"), "file with tools");
    directory.write("additional_chat_templates/broken.jinja", "{% if %}");
    EXPECT_EQ(text(directory, "[]"), "file");
    EXPECT_THROW(text(directory, "[]", "broken"), ConfigError);
}

TEST(Chat, MessagesAsTransformersShowsThem) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    directory.write("chat_template.jinja", "{{ messages }}");
    EXPECT_EQ(text(directory, R"([{"role": "assistant", "content": null, "tool_calls": [{"n": null}]}])"),
              "[{'role': 'assistant', 'tool_calls': [{'n': None}]}]");
    EXPECT_EQ(text(directory, R"([{"role": "assistant", "reasoning": "r"}])"),
              "[{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}]");
    for (const char* wrong :
         {"5", "{}", "[1]", R"({"messages": 1})", R"({"messages": [], "tools": {}})",
          R"({"messages": [], "add_generation_prompt": 1})", "[", R"({"messages": [], "documents": [1]})"}) {
        EXPECT_THROW(text(directory, wrong), BadInput) << wrong;
    }
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
