// tokenizer.json and chat templates. An input that starts with "{" is a tokenizer.json, with a text to encode
// behind the first byte 1; any other is a template. What is accepted must encode and decode, or render, or
// refuse.
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/error.h"
#include "common/tokenizer/jinja/template.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/fuzz/target.h"

using namespace tandem;

namespace {

void read_tokenizer(const std::string& input) {
    const std::size_t border = input.find('\x01');
    const std::string own = border == std::string::npos ? "" : input.substr(border + 1);
    const auto tokenizer = tokenizer::Tokenizer::from_json(input.substr(0, border), "tokenizer.json");
    for (const std::string& text :
         {own, own + " Hello, wörld's\t12 \xFF 中文 <s> 👍🏽\r\n  e\u0301"}) {
        const std::vector<std::int32_t> ids = tokenizer.encode(text, true);
        for (const std::int32_t id : ids) {
            if (id < 0 || !tokenizer.token(id)) continue;
            if (static_cast<std::size_t>(id) >= tokenizer.vocab_size()) std::abort();
        }
        const std::string decoded = tokenizer.decode(ids, false);
        tokenizer.decode(ids, true);
        tokenizer.encode(decoded, false);
    }
}

void read_template(const std::string& input) {
    static const nlohmann::ordered_json kMessages = nlohmann::ordered_json::parse(
        R"([{"role": "system", "content": "s"}, {"role": "user", "content": " hé \n"},
            {"role": "assistant", "content": "<think>a</think>b", "tool_calls": [{"name": "f", "n": 1.5}]}])");
    tokenizer::jinja::Limits limits;
    limits.steps = 20'000;
    limits.bytes = std::size_t{4} << 20;
    const tokenizer::jinja::Entries variables = {{"messages", tokenizer::jinja::Value::from_json(kMessages)},
                                                 {"bos_token", "<s>"},
                                                 {"add_generation_prompt", true},
                                                 {"tools", tokenizer::jinja::Value::None{}}};
    tokenizer::jinja::Template(input).render(variables, limits);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string input(reinterpret_cast<const char*>(data), size);
    try {
        input.starts_with('{') && !input.starts_with("{%") && !input.starts_with("{{") ? read_tokenizer(input)
                                                                                       : read_template(input);
    } catch (const Error&) {
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::string model =
        R"("model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,"ignore_merges":false,)"
        R"("vocab":{"<unk>":0,"<s>":1,"h":2,"e":3,"l":4,"o":5,"▁":6,"ll":7,"he":8,"Ġ":9,"<0xFF>":10},)"
        R"("merges":["l l",["h","e"]]})";
    const std::string added =
        R"("added_tokens":[{"id":1,"content":"<s>","single_word":true,"lstrip":true,"rstrip":true,)"
        R"("normalized":false,"special":true},{"id":11,"content":"中","normalized":true,"special":false}],)";
    const std::string post =
        R"("post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",)"
        R"("single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)"
        R"("special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}}]},)";
    const std::string split =
        R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t)|\\p{L}+|\\p{N}{1,3}|[^\\s\\w]+|\\s+(?!\\S)|\\s"},)"
        R"("behavior":"Isolated","invert":false})";
    return {
        "{" + added + post +
            R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"},)"
            R"({"type":"StripAccents"},{"type":"Strip","strip_left":true,"strip_right":true}]},)"
            R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
            split +
            R"(,{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true,"use_regex":false}]},)"
            R"("decoder":{"type":"ByteLevel"},)" +
            model + "}\x01hello",
        "{" + added +
            R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
            R"({"type":"Replace","pattern":{"String":" "},"content":"▁"},{"type":"NFKD"}]},)"
            R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},)"
            R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
            R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},)" +
            model + "}\x01\xC3he",
        R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Punctuation","behavior":"MergedWithNext"},)"
        R"({"type":"WhitespaceSplit"}]},"decoder":{"type":"Metaspace","replacement":"▁"},)" +
            model + "}",
        "{%- for m in messages[::-1] if m.role != 'system' -%}\n{{ loop.index ~ m['content'] | trim | length "
        "}}"
        "{%- if not loop.last %},{% elif m.tool_calls is defined %}{{ m.tool_calls | tojson(indent=2) }}{% "
        "endif %}{% endfor %}",
        "{% set ns = namespace(a=[1, 2.5], b={'c': none}) %}{% macro f(x, y=2) %}{{ x + y }}{% endmacro %}{{ "
        "f(1) }}"
        "{% set ns.a = ns.a + [3] %}{{ ns.a | map('string') | join('-') }}{{ 'a-b'.split('-', "
        "1)[0].replace('a', 'b') }}{# c #}",
        "{{ bos_token }}{% raw %}{{ x }}{% endraw %}{{ messages | selectattr('role', 'eq', 'user') | "
        "map(attribute='content') | list }}"
        "{{ -7 // 2 * 3 % 4 ** 2 }}{{ 'x' if tools is none else raise_exception('y') }}{{ range(1, 9, 3) | "
        "list | reverse | first }}",
    };
}
