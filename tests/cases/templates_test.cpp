// Chat templates that other programs render: what they give here, on the command line.
#include <filesystem>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using nlohmann::json;

class Templates : public Case {
  protected:
    Templates() { write_qwen2(path("model")); }

    void set(const json& tokenizer_config) {
        write_text(path("model/tokenizer_config.json"), tokenizer_config.dump());
    }
    Ended tokenize(const std::string& conversations, const std::vector<std::string>& more = {}) const {
        write_text(path("talk.jsonl"), conversations + "\n");
        std::vector<std::string> command{"tandem-engine", "tokenize", "--model", path("model"),
                                         "--chat",        "--text",   "--file",  path("talk.jsonl")};
        command.insert(command.end(), more.begin(), more.end());
        return ended(command);
    }
    // What comes of a template and a conversation; the exit code and the message where it is not 0.
    std::string text(const std::string& conversation) const {
        const Ended run = tokenize(conversation);
        if (run.code != 0) return "exit " + std::to_string(run.code) + ": " + run.err;
        return json::parse(run.out).get<std::string>();
    }
    std::string rendered(const std::string& chat_template) {
        set({{"eos_token", "</s>"}, {"chat_template", chat_template}});
        return text(R"([{"role": "user", "content": "hi"}])");
    }
};

// node-llama-cpp#366, llama.cpp#11443 and #11866, minijinja#815, nobodywho#563: one word that an engine
// lacks, and no request of the model works.
TEST_F(Templates, WhatTransformersRenders) {
    EXPECT_EQ(rendered("{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}"
                       "{% filter upper %}a{{ messages[0].role }}{% endfilter %}"
                       "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}"
                       "{% for m in messages %}{{ loop.cycle('a', 'b') }}{% endfor %}"),
              "<in>AUSER1(2,){'k': 3}a");
    EXPECT_EQ(
        rendered(
            "{{ '%s has %d' % ('x', 2) }} {{ '%05.2f' | format(3.14159) }} {{ 'a=b'.partition('=')[2] }} "
            "{{ [1, 2, 3] | batch(2) | list }} {{ messages | selectattr('role', '==', 'user') | list | "
            "length }}"
            "{% set d = {1: 'a'} %}{{ d[1] }}{{ messages[0] | attr('role') }}{{ 'ab'.ljust(3) }}|"),
        "x has 2 03.14 b [[1, 2], [3]] 1aab |");
}

// The same, where another text would have come of it without a word.
TEST_F(Templates, NothingElseSilently) {
    EXPECT_EQ(rendered("{{ '5.7' | int }} {{ '0x1A' | int(base=16) }} {{ "
                       "'a\\x0bb\\x85c\\u2028d'.splitlines() | length }} "
                       "{{ range(3) }} {{ ('a', 1) }} {{ {'p': 1} | items | list }}"),
              "5 26 4 range(0, 3) ('a', 1) [('p', 1)]");
    for (const char* unknown :
         {"{{ messages | random }}", "{{ 'a b' | urlize }}", "{{ range }}", "{% include 'x' %}",
          "{{ messages | map('upper') }}", "{{ 'x'.encode() }}", "{{ 2 ** 200 }}"}) {
        EXPECT_THAT(rendered(unknown), testing::StartsWith("exit 2: ")) << unknown;
    }
}

// nobodywho#61: bos_token of Qwen models is null, and templates ask whether there is one.
TEST_F(Templates, ATokenThatIsNullOrAbsent) {
    const std::string talk = R"([{"role": "user", "content": "hi"}])";
    const std::string guarded = "{% if bos_token %}{{ bos_token }}{% endif %}{{ messages[0].content }}";
    set({{"bos_token", nullptr}, {"eos_token", "</s>"}, {"chat_template", guarded}});
    EXPECT_EQ(text(talk), "hi");
    set({{"eos_token", "</s>"},
         {"chat_template", "{{ bos_token }}{{ bos_token is defined }}{{ eos_token }}"}});
    EXPECT_EQ(text(talk), "False</s>");
}

// llama.cpp#11616: Command R+ and Hermes 2 Pro have a template of their own for tools.
TEST_F(Templates, ToolsGetTheTemplateForTools) {
    set({{"eos_token", "</s>"},
         {"chat_template",
          {{{"name", "default"}, {"template", "plain {{ messages[0].content }}"}},
           {{"name", "tool_use"}, {"template", "tools: {{ tools | length }} {{ messages[0].content }}"}}}}});
    const std::string message = R"({"messages": [{"role": "user", "content": "hi"}])";
    const std::string tools = message + R"(, "tools": [{"type": "function", "function": {"name": "f"}}]})";
    EXPECT_EQ(text(tools), "tools: 1 hi");
    EXPECT_EQ(text(message + "}"), "plain hi");
    EXPECT_EQ(tokenize(tools, {"--template", "default"}).out, "\"plain hi\"\n");
    const Ended unknown = tokenize(tools, {"--template", "rag"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, testing::HasSubstr("no chat template named \"rag\"; known: default, tool_use"));
    std::filesystem::create_directories(path("model/additional_chat_templates"));
    write_text(path("model/additional_chat_templates/tool_use.jinja"), "file {{ tools[0].type }}");
    write_text(path("model/chat_template.jinja"), "file");
    EXPECT_EQ(text(tools), "file function");
    EXPECT_EQ(text(message + "}"), "file");
}

// llama.cpp#16622, vllm#17894: bounds of 64 bits in the schemas of Go, Rust and protobuf.
TEST_F(Templates, IntegersOfSchemasKeepTheirValue) {
    set({{"eos_token", "</s>"}, {"chat_template", "{{ tools | tojson }}{{ tools[0].maximum + 1 }}"}});
    EXPECT_EQ(text(R"({"messages": [], "tools": [{"maximum": 18446744073709551615}]})"),
              R"([{"maximum": 18446744073709551615}]18446744073709551616)");
    EXPECT_EQ(
        text(
            R"({"messages": [], "tools": [{"maximum": 36893488147419103232, "least": -9223372036854775808, "x": 1e400}]})"),
        R"([{"maximum": 36893488147419103232, "least": -9223372036854775808, "x": Infinity}]36893488147419103233)");
    EXPECT_THAT(text(R"({"messages": [], "tools": [{"maximum": 1)" + std::string(60, '0') + "}]}"),
                testing::AllOf(testing::StartsWith("exit 2: "), testing::HasSubstr("more than 128 bits")));
}

}  // namespace
}  // namespace tandem::test
