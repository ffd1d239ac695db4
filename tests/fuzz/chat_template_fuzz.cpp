// A chat template with a conversation, under the product's limits divided by what sanitizers cost: each input ends with
// a text or an error, in bounded time. The template is what stands before the first byte 1, the conversation (JSON) what stands behind it.
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/jinja/template.h"
#include "tests/fuzz/target.h"

using namespace tandem;
using nlohmann::ordered_json;
using tokenizer::jinja::Value;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string input(reinterpret_cast<const char*>(data), size);
    const std::size_t border = input.find('\x01');
    ordered_json messages;
    if (border != std::string::npos) messages = ordered_json::parse(input.substr(border + 1), nullptr, false);
    if (!messages.is_array())
        messages = {{{"role", "user"}, {"content", " hé \n"}}, {{"role", "assistant"}, {"content", "b"}}};
    constexpr int kSanitizersCost = 16;
    tokenizer::jinja::Limits limits;
    limits.steps /= kSanitizersCost;
    limits.bytes /= kSanitizersCost;
    limits.work /= kSanitizersCost;
    try {
        tokenizer::jinja::Template(input.substr(0, border))
            .render({{"messages", Value::from_json(messages)},
                     {"bos_token", "<s>"},
                     {"add_generation_prompt", true},
                     {"tools", Value::None{}}},
                    limits);
    } catch (const Error&) {
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::string conversation =
        "\x01"
        R"([{"role":"system","content":"s"},{"role":"user","content":["x",{"type":"text","text":"y"}]},)"
        R"({"role":"assistant","content":"<think>a</think>b","tool_calls":[{"name":"f","n":1.5}]}])";
    return {"{% for m in messages %}{{ '<|' ~ m.role ~ '|>' + m['content'] | string | trim }}{% endfor %}" +
                conversation,
            "{% for m in messages[::-1] if m.role == 'user' %}{{ m.content[0][-1:] | length }}{% endfor %}" +
                conversation,
            "{{ messages[0] == messages[1] }}{{ 'a' in messages[0].content }}{{ messages | "
            "map(attribute='role') | "
            "join(',') | upper }}" +
                conversation,
            "{% set d = '{\"a\":1,\"b\":[2]}' | from_json %}{{ d.items() | list | length }}{{ d == {'b': "
            "[2], 'a': 1} "
            "}}",
            "{% set s = 'ab' * 99 %}{% for i in range(99) %}{{ s[i] }}{{ s.find('ba', 1) }}{% endfor %}",
            "{% set x = namespace(y='a') %}{% for i in range(9) %}{% set x.y = x.y ~ x.y %}{% endfor %}{{ "
            "x.y | unique | "
            "sort | dictsort }}",
            "{{ messages | tojson(indent=2) }}{{ messages | map('tojson') | list | unique | list }}" +
                conversation,
            "{% macro w(a, b=2) %}{{ a }}{{ varargs }}{{ kwargs }}{{ caller(1) }}{% endmacro %}{% call(x) "
            "w(1, 2, 3, "
            "k={(1, 2): 3}) %}{{ x }}{% endcall %}{% filter upper | trim %} a {% endfilter %}",
            "{% for x in [[1, [2]], 3] recursive %}{{ loop.depth }}{{ loop.changed(x) }}{{ loop(x) if x is "
            "iterable }}{{ "
            "loop.nextitem }}{% else %}e{% endfor %}{% set g = 'abc' | map('upper') %}{{ g | first }}{{ g | "
            "join }}",
            "{{ '%05.2f|%-5s|%(k)r' % {'k': 1} }}{{ '{:>{w}.2f}{0[a]!r}'.format(1.5, w=9) }}{{ 2 ** 99 // 7 "
            "% -3 }}{{ "
            "range(9)[::-2] }}{{ ('<' | safe) + '>' }}{{ messages | groupby('role') }}" +
                conversation};
}
