// Templates against jinja2 as transformers sets it up (tests/golden/make_chat_template.py), and the limits.
#include <fstream>

#include "common/error.h"
#include "common/tokenizer/jinja/template.h"
#include "tests/unit/common/tokenizer/directory.h"

namespace tandem::tokenizer::jinja {
namespace {

using nlohmann::ordered_json;

const ordered_json& golden() {
    static const ordered_json kGolden = [] {
        std::ifstream in(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/tokenizer/jinja.json");
        return ordered_json::parse(in);
    }();
    return kGolden;
}

// The text, or null where the template is refused.
ordered_json rendered(const std::string& text, const ordered_json& variables) {
    Entries entries;
    for (const auto& [key, value] : variables.items()) entries.emplace_back(key, Value::from_json(value));
    try {
        return Template(text).render(entries);
    } catch (const Error&) {
        return nullptr;
    }
}

TEST(Jinja, SnippetsGiveWhatJinja2Gives) {
    ASSERT_GT(golden()["snippets"].size(), 300u);
    for (const auto& snippet : golden()["snippets"]) {
        EXPECT_EQ(rendered(snippet[0], golden()["variables"]), snippet[1]) << snippet[0];
    }
}

TEST(Jinja, ChatTemplatesGiveWhatTransformersGives) {
    for (const auto& [name, chats] : golden()["chats"].items()) {
        for (std::size_t i = 0; i < chats.size(); ++i) {
            ordered_json variables = {
                {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", true}};
            variables.update(golden()["tokens"]);
            variables.update(golden()["conversations"][i]);
            EXPECT_EQ(rendered(golden()["templates"][name], variables), chats[i])
                << name << ", conversation " << i;
        }
    }
}

std::string failure(const std::string& text) {
    try {
        Template(text).render({});
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(Jinja, HostileTemplatesEndInAnError) {
    const std::string many(100'000, '(');
    EXPECT_NE(failure("{{ " + many), "");
    EXPECT_NE(failure("{% set x = 'a' %}" + std::string(60, ' ') +
                      "{% for i in range(60) %}{% set ns = namespace(x=x) %}{% endfor %}"
                      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + "
                      "ns.x %}{% endfor %}"),
              "");
    EXPECT_NE(failure("{% set ns = namespace(x=[1]) %}{% for i in range(999) %}{% set ns.x = [ns.x, ns.x] "
                      "%}{% endfor %}{{ ns.x }}"),
              "");
    EXPECT_NE(failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"), "");
    EXPECT_NE(failure("{{ range(999999999999) }}"), "");
    EXPECT_NE(failure("{{ 'a' * 99999999999 }}"), "");
    EXPECT_NE(failure("{{ ('a' * 99999).replace('a', 'b' * 99999) }}"), "");
    EXPECT_NE(failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "");
    EXPECT_NE(failure("{{ 'x' | indent(" + std::string(40, '9') + ") }}"), "");
    std::string sum = "1";
    for (int i = 0; i < 10'000; ++i) sum += "+1";
    EXPECT_NE(failure("{{ " + sum + " }}"), "");
    std::string nested;
    for (int i = 0; i < 10'000; ++i) nested += "{% if true %}";
    EXPECT_NE(failure(nested), "");
    // A namespace within itself neither leaks nor hangs.
    EXPECT_EQ(failure("{% set ns = namespace(x=1) %}{% set ns.x = [ns] %}{{ ns.x | length }}"), "");
}

// What makes little and takes long: each of these ran for minutes, or hours, within the limits of steps and bytes.
TEST(Jinja, WorkIsLimitedToo) {
    const auto expect_limit = [](const std::string& text, const char* why = "more work than") {
        EXPECT_THAT(failure(text), testing::HasSubstr(why)) << text.substr(0, 100);
    };
    const std::string loop = "{% for i in range(99999) %}", end = "{% endfor %}";
    const std::string long_text = "{% set s = 'a' * 30000000 %}", other = "{% set t = 'a' * 30000000 %}";
    const auto keys = [](int count) {
        return "('{\"' ~ (range(" + std::to_string(count) + ")|join('\":0,\"')) ~ '\":0}') | from_json";
    };
    expect_limit("{% for i in range(1000) %}{{ " + keys(100'000) + " | length }}{% endfor %}");
    expect_limit("{{ ('[' ~ '0,' * 600000 ~ '0]') | from_json | length }}", "from_json: more than");
    expect_limit(long_text + loop + "{{ s is string }}" + end);
    expect_limit(long_text + loop + "{% for x in [s] %}{% endfor %}" + end);
    expect_limit(long_text + loop + "{{ s[0] }}" + end);
    expect_limit(long_text + loop + "{{ s | length }}" + end);
    expect_limit(long_text + loop + "{{ s | int }}" + end);
    expect_limit(long_text + other + loop + "{{ s == t }}" + end);
    expect_limit(long_text + other + loop + "{{ s < t }}" + end);
    expect_limit(long_text + other + loop + "{{ s in [t] }}" + end);
    expect_limit(long_text + loop + "{{ 'b' in s }}" + end);
    expect_limit("{% set s = 'a' * 900000 %}{{ ('a' * 400000 ~ 'b') in s }}");
    expect_limit("{% set s = 'a' * 900000 %}{{ s.find('a' * 400000 ~ 'b') }}");
    expect_limit("{% set d = " + keys(9000) + " %}{% set e = " + keys(9000) + " %}" + loop + "{{ d == e }}" +
                 end);
    expect_limit("{% set d = " + keys(9000) + " %}" + loop + "{{ d['8999'] }}{{ d.missing }}" + end);
    expect_limit("{% set d = " + keys(9000) + " %}" + loop + "{{ '8999' in d }}" + end);
    std::string names;
    for (int i = 0; i < 3000; ++i) names += "{% set a" + std::to_string(i) + " = 1 %}";
    expect_limit(names + loop + "{{ a2999 }}" + end);
}

TEST(Jinja, DictionariesAreEqualInAnyOrder) {
    EXPECT_EQ(rendered("{{ {'a': 1, 'b': [2.0]} == {'b': [2], 'a': true} }}", ordered_json::object()),
              "True");
    EXPECT_EQ(rendered("{{ {'a': 1, 'b': 2} == {'a': 2, 'b': 1} }}{{ {'a': 1} == {'b': 1} }}",
                       ordered_json::object()),
              "FalseFalse");
}

TEST(Jinja, ErrorsNameTheLine) {
    EXPECT_THAT(failure("a\nb\n{{ 1 +"), testing::StartsWith("line 3: "));
    EXPECT_THAT(failure("a\n{% if true %}\n{{ missing.attribute }}{% endif %}"),
                testing::StartsWith("line 3: 'missing' is undefined"));
    EXPECT_THAT(failure("{{ raise_exception('no tools') }}"), testing::HasSubstr("refuses: no tools"));
}

TEST(Jinja, NamesThatATemplateNeeds) {
    const Template needs(
        "{{ bos_token }}{% if eos_token is defined %}{{ eos_token }}{% endif %}{{ pad_token | default('') }}"
        "{% set own = 1 %}{{ own }}{% for m in messages %}{{ m.unk_token }}{% endfor %}");
    EXPECT_EQ(needs.names_needed(), (std::set<std::string>{"bos_token", "messages"}));
}

}  // namespace
}  // namespace tandem::tokenizer::jinja
