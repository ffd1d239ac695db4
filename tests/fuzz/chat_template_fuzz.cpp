// A chat template with a conversation, under the product's limits divided by what sanitizers cost: each input ends with
// a text or an error, and takes no more time than it is charged for: the limits are too small here for what takes long
// for little to last. The template is what stands before the first byte 1, the conversation (JSON) what stands behind it.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/jinja/template.h"
#include "tests/fuzz/target.h"

using namespace tandem;
using nlohmann::ordered_json;
using tokenizer::jinja::Value;

namespace {

double thread_seconds() {
    std::timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A unit takes up to some nanoseconds, and sanitizers some tens as long.
void check_time(double seconds, std::uint64_t charged) {
    constexpr double kOfUnit = 3e-7, kOfAny = 0.2;
    const double most = kOfAny + kOfUnit * static_cast<double>(charged);
    if (seconds <= most) return;
    std::fprintf(stderr, "%.2f s of processor time, charged %llu units for %.2f s\n", seconds,
                 static_cast<unsigned long long>(charged), most);
    std::abort();
}

}  // namespace

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
    limits.seconds = 1e9;
    constexpr std::uint64_t kOfSourceByte = 64;
    std::uint64_t charged = 0;
    const double begin = thread_seconds();
    try {
        tokenizer::jinja::Template(input.substr(0, border))
            .render({{"messages", Value::from_json(messages)},
                     {"bos_token", "<s>"},
                     {"add_generation_prompt", true},
                     {"tools", Value::None{}}},
                    limits, &charged);
    } catch (const Error&) {
    }
    check_time(thread_seconds() - begin, charged + kOfSourceByte * input.size());
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::string conversation =
        "\x01"
        R"([{"role":"system","content":"s"},{"role":"user","content":["x",{"type":"text","text":"y"}]},)"
        R"({"role":"assistant","content":"<think>a</think>b","tool_calls":[{"name":"f","n":1.5}]}])";
    return {
        "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' + m['content'] | string | trim }}{% endfor %}" +
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
        "{{ ('a' * 30000).strip('b' * 30000 ~ 'a') }}{{ ('a ' * 9000).title() }}{{ ('aB' * 9000) | swapcase "
        "}}",
        "{{ ('a' * 3000000).split(sep='a' * 1400000 ~ 'b') }}{{ ('{k}' * 9000).format(**dict(k=1)) }}{{ "
        "'%(a).900g' * 9000 % {'a': 1.5} }}",
        "{{ range(0, 8522900000, 85229) | unique | list | length }}{{ range(9999) | map(attribute='real') | "
        "batch(3) | sort(attribute='0,1') | list }}{{ '\\N{BULLET}' }}",
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
