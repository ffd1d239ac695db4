// Templates against jinja2 as transformers sets it up (tests/golden/make_chat_template.py), and the limits.
#include <fstream>
#include <iterator>

#include "common/error.h"
#include "common/tokenizer/jinja/json_reader.h"
#include "common/tokenizer/jinja/template.h"
#include "tests/unit/common/tokenizer/directory.h"
#include "tests/unit/common/tokenizer/render_cost.h"

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

// Every filter, test, method, statement and sign, and what of it is refused
// (tests/golden/make_jinja_table.py).
TEST(Jinja, EachPartGivesWhatJinja2Gives) {
    std::ifstream in(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/tokenizer/jinja_table.json");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const Value table = read_json(text);
    Runtime any(Limits::none());
    Entries variables;
    for (const auto& [name, value] : table.dict()->find_name(any, "variables")->dict()->pairs()) {
        variables.emplace_back(*name.string(), value);
    }
    const List& rows = *table.dict()->find_name(any, "rows")->items();
    ASSERT_GT(rows.size(), 1300u);
    for (const Value& row : rows) {
        const std::string& source = *(*row.items())[0].string();
        const std::string* wanted = (*row.items())[1].string();
        try {
            const std::string found = Template(source).render(variables);
            EXPECT_TRUE(wanted != nullptr) << source << " must be refused, gave " << found;
            EXPECT_EQ(found, wanted == nullptr ? "" : *wanted) << source;
        } catch (const Error& error) {
            EXPECT_EQ(wanted, nullptr) << source << ": " << error.what();
        }
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

std::string failure(const std::string& text, const Limits& limits = {}) {
    try {
        Template(text).render({}, limits);
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

// `count` times what `one` gives for each number.
template <typename One>
std::string repeated(int count, const One& one, const char* between = "") {
    std::string all;
    for (int i = 0; i < count; ++i) all.append(i > 0 ? between : "").append(one(i));
    return all;
}

#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
constexpr int kSanitizersCost = 8;
constexpr double kMostSeconds = 60, kMostMebibytes = 1e9;  // what they take beside
#else
constexpr int kSanitizersCost = 1;
constexpr double kMostSeconds = 4, kMostMebibytes = 384;  // of 1 and 256, the latter while a vector doubles
#endif

Limits charged() {  // by what is done, not by the clock
    Limits limits;
    limits.steps /= kSanitizersCost;
    limits.bytes /= kSanitizersCost;
    limits.work /= kSanitizersCost;
    limits.seconds = 1e9;
    return limits;
}

// Ends with `why`, or well where that is empty, by what it is charged, not by the clock; and that is honest.
void expect_bounded(const std::string& source, const std::string& why = "more ") {
    const RenderCost cost = cost_of(source, charged(), static_cast<unsigned>(5 * kMostSeconds));
    const std::string shown = source.substr(0, 120);
    const auto says = [&](const std::string& text) { return cost.error.find(text) != std::string::npos; };
    const bool earlier = kSanitizersCost > 1 && says("more ");
    EXPECT_TRUE(earlier || (why.empty() ? cost.error.empty() : says(why))) << shown << ": " << cost.error;
    EXPECT_LT(cost.error.size(), 10'000u) << shown;
    EXPECT_LT(cost.seconds, kMostSeconds) << shown;
    EXPECT_LT(cost.mebibytes, kMostMebibytes) << shown;
}

// What makes little and takes long: each of these ran for minutes, or hours, within the limits of steps and
// bytes.
TEST(Jinja, WorkIsLimitedToo) {
    const Limits limits = charged();
    Limits whole;
    whole.seconds = limits.seconds;
    const auto expect_limit = [&](const std::string& text, const char* why = "more work than") {
        EXPECT_THAT(failure(text, limits), testing::HasSubstr(kSanitizersCost > 1 ? "more " : why))
            << text.substr(0, 100);
    };
    const std::string loop = "{% for i in range(99999) %}", end = "{% endfor %}";
    const std::string long_text = "{% set s = 'a' * 30000000 %}", other = "{% set t = 'a' * 30000000 %}";
    const auto keys = [](int count) {
        return "('{\"' ~ (range(" + std::to_string(count) + ")|join('\":0,\"')) ~ '\":0}') | from_json";
    };
    expect_limit("{% for i in range(1000) %}{{ " + keys(100'000) + " | length }}{% endfor %}",
                 "bytes of text");
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
    expect_limit(loop + loop + "{{ i is defined }}" + end + end, "more ");
    // What is made in one expression is charged as it is made.
    expect_limit("{% set s='x'*10000000 %}{{ range(100000)|list|tojson(separators=[s,':'])|length }}",
                 "bytes of text");
    expect_limit("{% set x = range(100000)|list %}" + loop + "{% if x is lower %}{% endif %}" + end);
    expect_limit("{% set s = 'aB' * 15000000 %}{{ s | title }}{{ s | title }}");
    expect_limit("{{ ('a' * 33000000).split('a') | length }}", "bytes of text");
    expect_limit("{{ ('\n' * 33000000) | indent(8, blank=true) | length }}", "bytes of text");
    EXPECT_EQ(failure("{{ ('a' * 33000000).count('a') }}", whole), "");
    expect_limit("{% set s = 'x' * 10000000 %}{{ range(100000) | join(s) | length }}", "bytes of text");
    expect_limit("{% set s = 'x' * 10000000 %}{% set l = [s, s, s] %}{{ l ~ l ~ l ~ l ~ l ~ l ~ l ~ l ~ l }}",
                 "bytes of text");
    const std::string loops = loop + "{% for j in range(99999) %}", ends = end + end;
    const auto named = [](int count) {
        return "dict(" +
               repeated(
                   count, [](int i) { return "k" + std::to_string(i) + "=1"; }, ",") +
               ")";
    };
    // Each was seen to take minutes, or gigabytes, while it was charged for little.
    expect_bounded("{% set s='x'*10000000 %}{{ range(100000)|list|tojson(separators=[s,':'])|length }}");
    expect_bounded("{% set x = range(100000)|list %}" + loops + "{% if x is lower %}{% endif %}" + ends);
    expect_bounded("{% set ns = namespace(" + named(16'000) + ") %}" + loops + "{% set ns.k15999=1 %}" +
                   ends);
    expect_bounded(repeated(200'000, [](int i) { return "{% set a" + std::to_string(i) + "=1 %}"; }));
    expect_bounded(loop + "{% set d = {" +
                   repeated(
                       100'000, [](int i) { return std::to_string(i) + ":1"; }, ",") +
                   "} %}" + end);
    expect_bounded("{% set s = 'aB'*15000000 %}" + repeated(30, [](int) { return "{{ s|title }}"; }));
    expect_bounded("{{ ('a'*33000000).split('a') }}");
    expect_bounded("{{ ('a'*33000000).count('a') }}", "");
    expect_bounded("{{ ('\n'*33000000)|indent|length }}", "");
}

// The same as the above, elsewhere.
TEST(Jinja, TimeIsCharged) {
    const std::string loop = "{% for i in range(99999) %}", end = "{% endfor %}";
    const auto named = [](int count) {
        return repeated(
            count, [](int i) { return "k" + std::to_string(i) + "=1"; }, ",");
    };
    expect_bounded("{{ ('a '*4000000).title() }}");
    expect_bounded("{{ ('a '*15000000)|title }}");
    expect_bounded("{{ ('a'*300000).strip('b'*300000~'a') }}", "");
    expect_bounded("{{ ('a'*9000000).split(sep='a'*4000000~'b') }}");
    expect_bounded("{{ ('a'*9000000).replace('a'*4000000~'b','') }}");
    expect_bounded("{{ ('a'*9000000).rpartition('b'~'a'*4000000) }}");
    expect_bounded("{% set d = dict(" + named(16'000) + ") %}{{ ('{k15999}'*1000000).format(**d)|length }}",
                   "");
    expect_bounded("{% set x = [9.9e300]*900000 %}{{ x|map('round')|list|length }}");
    expect_bounded("{% set x = [9.9e300]*900000 %}{{ x|map('filesizeformat')|list|length }}");
    expect_bounded("{{ '%(a).1000g'*3000000 % {'a':1.5} }}");
    expect_bounded(
        "{{ range(0,8522900000,85229)|unique|list|length }}"
        "{{ range(0,7279300000,107897)|unique|list|length }}{{ range(0,2**64*99999,2**64)|unique|list }}");
    expect_bounded("{% macro m(" + named(60'000) + ") %}{% endmacro %}{{ m(**dict(" + named(60'000) + ")) }}",
                   "");
    expect_bounded("{% macro m(" + named(150'000) + ") %}{% endmacro %}", "");
    expect_bounded("{{ dict(" + named(150'000) + ")|length }}", "");
    expect_bounded("{{ '" + repeated(350'000, [](int) { return "\\N{BULLET}"; }) + "' }}",
                   "of processor time");
    expect_bounded("{{ " +
                   repeated(
                       600'000, [](int) { return "1"; }, ",") +
                   " }}");
    expect_bounded(std::string(5'000'000, ' '));
}

TEST(Jinja, MemoryIsCharged) {
    const auto held = [](const std::string& one) {
        return "{% set x = [" +
               repeated(
                   80, [&](int) { return one; }, ",") +
               "] %}";
    };
    expect_bounded("{{ ('a'*8000000)|list }}");
    expect_bounded(held("range(100000)|map(attribute='conjugate')|list"));
    expect_bounded(held("range(100000)|map('batch',1)|list"));
    expect_bounded(held("range(100000)|map(attribute='no')|list"));
    expect_bounded(held("range(100000)|batch(1)|list"));
    expect_bounded(held("dict.fromkeys(range(100000)).items()|list"));
    expect_bounded("{% set r = range(100000)|list %}" + held("r|groupby('real')"));
    expect_bounded("{% set r = range(100000)|list %}" + held("r|sort"));
    expect_bounded("{% set j = '['~'[],'*340000~'1]' %}" + held("j|from_json"));
    expect_bounded("{% set s = 'a'*30000000 %}{% set d = {} %}" + held("d[s]"));
    expect_bounded("{{ ('Σ'*4000000).join('abc'*100000) }}");
    expect_bounded("{% set s = 'a'*8000000 %}{% for i in range(99) %}{{ s }}{% endfor %}");
    expect_bounded("{% set s = 'a'*30000000 %}{{ raise_exception(s) }}", "refuses");
    expect_bounded("{% set s = 'a'*30000000 %}{{ [1]|map(s)|list }}", "no filter");
    expect_bounded("{{ [1]|map(attribute='.'*33000000)|list }}");
    expect_bounded("{{ [1]|sort(attribute=','*33000000) }}");
    expect_bounded(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% macro m() %}{% endmacro %}"
        "{% endfor %}{% endfor %}");
}

// What is held in a long chain is given up link by link, on the stack.
TEST(Jinja, ChainsAreShort) {
    const auto chain = [](const std::string& link) {
        return "{% set ns = namespace(x=1) %}{% for i in range(99999) %}" + link + "{% endfor %}";
    };
    const char* const deep = "nested too deep";
    expect_bounded(chain("{% set ns.x = [ns.x] %}"), deep);
    expect_bounded(chain("{% set ns.x = [1]|map('default', ns.x) %}"), deep);
    expect_bounded(chain("{% set ns.x = [1]|map(attribute='q', default=ns.x) %}"), deep);
    expect_bounded(chain("{% set ns.x = [1]|batch(2, ns.x) %}"), deep);
    expect_bounded(chain("{% set ns.x = cycler(ns.x).next %}"), deep);
    expect_bounded(chain("{% for k in [ns.x] %}{% set ns.x = loop.cycle %}{% endfor %}"), deep);
    expect_bounded(chain("{% set p = ns.x %}{% for k in [1] %}{% set ns.x = loop %}{% endfor %}"), "");
    expect_bounded(chain("{% set p = ns.x %}{% macro m() %}{% endmacro %}{% set ns.x = m %}"), "");
    expect_bounded(chain("{% set ns.x = namespace(x=ns.x) %}"), "");
}

// Look-ups are hashed: a name or key among many costs what one among few does.
TEST(Jinja, ManyNamesAndKeysAreFound) {
    Limits limits;
    limits.seconds = 1e9;
    std::string names, keys;
    for (int i = 0; i < 20'000; ++i) {
        names += "{% set a" + std::to_string(i) + " = 1 %}";
        keys += (i == 0 ? "" : ",") + std::string("k") + std::to_string(i) + "=1";
    }
    EXPECT_EQ(failure(names, limits), "");
    EXPECT_EQ(failure("{% set ns = namespace(" + keys +
                          ") %}{% for i in range(100000) %}{% set ns.k19999 = i %}"
                          "{% endfor %}",
                      limits),
              "");
    EXPECT_EQ(failure("{% set d = dict(" + keys +
                          ") %}{% for i in range(100000) %}{{ d['k19999'] }}{{ d.missing }}"
                          "{{ 'k1' in d }}{% endfor %}",
                      limits),
              "");
}

TEST(Jinja, TheClockEndsWhatIsChargedTooLittle) {
    Limits limits = Limits::none();
    limits.seconds = 0.02;
    EXPECT_THAT(
        failure("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", limits),
        testing::HasSubstr("more than 0.02 s of processor time"));
    limits.seconds = 0;
    EXPECT_THAT(failure("{{ ('aB' * 1000000) | title }}", limits), testing::HasSubstr("of processor time"));
}

TEST(Jinja, IntegersOfJsonKeepTheirValue) {
    const auto written = [](const std::string& json) {
        return Template("{{ x | tojson }} {{ x }}").render({{"x", read_json(json)}});
    };
    EXPECT_EQ(written("[18446744073709551615, -9223372036854775808]"),
              "[18446744073709551615, -9223372036854775808] [18446744073709551615, -9223372036854775808]");
    EXPECT_EQ(written("-340282366920938463463"), "-340282366920938463463 -340282366920938463463");
    EXPECT_EQ(written("[1e400, -1E400, 1.0, -0, 5e-324]"),
              "[Infinity, -Infinity, 1.0, 0, 5e-324] [inf, -inf, 1.0, 0, 5e-324]");
    EXPECT_EQ(written("NaN"), "NaN nan");
    EXPECT_EQ(written(R"({"b": 1, "a": 2, "b": 3})"), R"({"b": 3, "a": 2} {'b': 3, 'a': 2})");
    EXPECT_EQ(Template("{{ x }}").render({{"x", Value::from_json(ordered_json(18446744073709551615u))}}),
              "18446744073709551615");
    for (const char* wrong : {"999999999999999999999999999999999999999999", "[1,]", "01", "{\"a\":}",
                              "\"\\ud800\"", "[1] 2", "", "+1", "1.", "\"\n\"", "{1: 2}", "nul"}) {
        EXPECT_THROW(read_json(wrong), BadInput) << wrong;
    }
    EXPECT_THROW(read_json(std::string(100, '[')), BadInput);
    try {
        read_json("[1,\n 2,, 3]");
        FAIL();
    } catch (const BadInput& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("line 2, column 4"));
    }
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
