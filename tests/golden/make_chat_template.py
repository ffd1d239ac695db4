#!/usr/bin/env python3
"""Writes tests/golden/data/tokenizer/jinja.json: what jinja2, set up as transformers does it, makes of snippets
and of templates in the manner of the public chat templates. An output of null: jinja2 raised an exception.

    tests/golden/make_chat_template.py        needs transformers 5 and jinja2 3.1
"""
import json
import pathlib

from chat_conversations import CONVERSATIONS
from transformers.utils.chat_template_utils import _compile_jinja_template

DATA = pathlib.Path(__file__).parent / "data" / "tokenizer"
VARIABLES = {"a": [1, 2, 3, 4], "s": "  Hello, Wörld 😀 ", "d": {"x": 1, "y": [True, None], "items": "own"}, "e": [], "n": None,
             "t": "a-b--c", "m": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}], "f": 2.5, "flag": True}

EXPRESSIONS = """
1 + 2 * 3 - 4 | -7 // 2 | -7 % 3 | 7 / 2 | 2 ** 10 | -2 ** 2 | 1 ~ 'x' ~ 2.0 | 'a' 'b' | 'a' * 3 | [1] * 2 | [1] + [2]
a[0] | a[-1] | a[9] is defined | a[1:] | a[::-1] | a[:-1] | a[-3:-1] | a[::2] | a[3:0:-2] | a[10:] | s[2:7] | s[::-1] | a[1:2][0]
d.x | d['x'] | d.missing is defined | d.missing | d.y[1] | d['items'] | d.items() is defined | d.keys is defined | d.get('x') | d.get('z', 5) | d.get('z')
s.strip() | s.lstrip() | s.rstrip() | 'xxaxx'.strip('x') | t.split('-') | t.split('-', 1) | t.rsplit('-', 1) | s.split() | ' a  b '.split(none, 1)
s.upper() | s.lower() | 'hello world'.title() | 'hELLO'.capitalize() | s.startswith('  H') | t.endswith('c') | t.endswith(('x', 'c')) | t.replace('-', '+') | t.replace('-', '+', 1)
t.find('b') | t.find('z') | t.count('-') | '12'.isdigit() | 'a\\nb\\n'.splitlines() | t.index is defined | '-'.join(['a', 'b']) | 'abc'.removeprefix('a')
1 < 2 | 1 < 2 < 3 | 1 < 2 > 5 | 'a' < 'b' | 1 == 1.0 | true == 1 | [1, 2] == [1, 2] | d == {'x': 1} | 1 != 2 | 'b' in t | 'z' not in t | 1 in a | 'x' in d | n == none
not flag | not n is none | flag and f | n or 'other' | e or n or 0 | flag and e | (1 if flag else 2) | (1 if e) | (1 if e) is defined | 'y' if n is none else 'z'
s is string | a is string | a is iterable | d is mapping | a is sequence | f is number | 3 is integer | f is float | true is boolean | n is none | nothing is defined | nothing is not defined | 4 is even | 3 is odd | 9 is divisibleby 3 | 1 is true | true is true | a is mapping | 'x' is in t | 3 is eq 3 | 3 is gt 2 | 'A' is upper
s | trim || t | length || a | length || e | length || d | length || a | join(', ') || a | first || a | last || e | first is defined || a | sum || a | max || t | upper || t | replace('-', '') || n | default('q') || nothing | default('q') || '' | default('q', true) || a | reverse | list || t | reverse
d | tojson || a | tojson || s | tojson || n | tojson || f | tojson || d | tojson(indent=2) || [] | tojson(indent=2) || {} | tojson || '\\u00e9\\n\\t\\x01"' | tojson || 1e20 | tojson || 1.0 | tojson || d | tojson(separators=(',', ':')) || 'é' | tojson(ensure_ascii=true)
a | map('string') | list || m | map(attribute='role') | list || m | map(attribute='role') | join('/') || m | selectattr('role', 'equalto', 'user') | list || m | rejectattr('role', 'eq', 'user') | map(attribute='content') | first || a | select('odd') | list || a | reject('odd') | list || [0, 1, '', 'x'] | select | list || m | selectattr('content') | list | length
d | items | list | tojson || d.items() | list | tojson || d.keys() | list || d.values() | list || {'b': 1, 'a': 2} | dictsort | tojson || ['b', 'A', 'c'] | sort || [3, 1, 2] | sort(reverse=true) || [1, 2, 1] | unique | list || 'a\\nb' | indent || 'a\\nb\\n\\nc' | indent(2, true) || '5' | int || 'x' | int || '2.5' | float || 3.9 | int || f | string || -3 | abs || '<a & "b">' | e || t | list || 'aB' | capitalize || 'x' | string
a || d || s || f || n || flag || 1e16 || 1.5e-7 || 100000000000000000000.0 || 'it\\'s' || ['it\\'s', "say \\"x\\"", 'a\\nb'] || (1, 2) | list || [none, true, {'k': 1.0}] || 0.1 || -0.0 || 123456789012
nothing || nothing.more || nothing['x'] || nothing + 1 || 1 + 'a' || n.x || n.x.y || a.x || a['x'] || 5 / 0 || d.append(1) || a.append(1) || none | length || 5 | join || {}.x.y || raise_exception('no') || unknown_function() || range(3) | list || range(1, 10, 3) | list || range(5, 0, -2) | list || dict(a=1, b=2) || namespace(x=1).x
{'a': 1, 'b': {'c': [1, 2]}}.b.c[1] || {'a': 1, 'a': 2} || [[1, 2], [3]][0][1] || 'abc'[1] || 'äöü'[1:] || "tab\\there" || 'a\\\\b' || 'é' | length || '{}-{}'.format(1, 'x') || '{0}{1}{0}'.format('a', 'b') || true and not false || 1 if 0 else 2 if 0 else 3 || - 1 || 2 - -1 || 1 .__class__ is defined
""".strip()

SNIPPETS = [
    "{% for x in a %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for x in a %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in a %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in a if x is odd %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}",
    "{% for x in e %}never{% else %}empty{% endfor %}", "{% for x in a %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'äb😀' %}[{{ c }}]{% endfor %}",
    "{% for k, v in d | items %}{{ k }}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x, y in a %}{% endfor %}",
    "{% set x = 1 %}{% for y in a %}{% set x = y %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(v=0) %}{% for y in a %}{% set ns.v = ns.v + y %}{% endfor %}{{ ns.v }}",
    "{% for y in a %}{% if z is defined %}seen{% endif %}{% set z = y %}{% endfor %}{{ z is defined }}", "{% if flag %}{% set q = 3 %}{% endif %}{{ q }}",
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set b %}in{{ 1 }}{% endset %}[{{ b }}]", "{% set t2 = (1, 2) %}{{ t2[1] }}", "{% set d.x = 1 %}",
    "{% macro f(x, y=2) %}({{ x }},{{ y }}){% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(y=5, x=4) }}{{ f() }}", "{% macro r(k) %}{% if k > 0 %}{{ k }}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(4) }}",
    "{% macro f(x) %}{{ outer }}{% endmacro %}{% set outer = 7 %}{{ f(1) }}", "{% macro f(x) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}",
    "{% if a|length > 3 and s is string %}yes{% elif false %}no{% else %}else{% endif %}", "{% if nothing %}a{% else %}b{% endif %}", "{% if not nothing is defined %}u{% endif %}",
    "{# comment #}x{#- stripped -#} y", "a {%- if true -%} b {%- endif -%} c", "a {{- 1 -}} b", "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  {%+ if true %}\n b{% endif +%}\nc",
    "  {{ 1 }}\n  {{ 2 }}\n", "x\n\n", "x\r\ny\r\n", "{% if true %}\n\nx{% endif %}\n", "  {# c #}\nx", "a{# c #}\nb", "{% raw %}{{ x }}{% if %}{% endraw %}!", "  {%- raw -%}  a  {%- endraw -%}  b",
    "\n {%- for x in a -%}\n {{ x }}\n {%- endfor %}\n", "{{ '\\n' }}x", "{{ \"a'b\" }}{{ 'a\"b' }}", "{% generation %}g{% endgeneration %}", "{{ 1 }}{{ '' }}{{ n }}{{ nothing }}",
    "{{ m[0].role }}{{ m[0]['role'] }}{{ m[-1].content }}{{ m[0].nope }}", "{{ m[5].role }}", "{% set msgs = m[1:] %}{{ msgs | length }}", "{{ m | tojson }}",
    "{% for x in m[::-1] %}{{ x.role }}{% endfor %}", "{{ ('a', 'b') | join('-') }}", "{{ [1, 2,] | length }}", "{{ {'a': 1,} | length }}", "{{ a | join(',') ~ '!' }}", "{{ -1 | abs }}",
    "{{ 'x' if a else 'y' }}", "{{ 'a' in ['a', 'b'] and 'c' not in 'ab' }}", "{{ d.x is defined and d.x is not none }}", "{{ (s | trim) ~ '.' }}", "{{ s | trim | length }}", "{{ ' x ' | trim }}|",
    "{{ 1", "{% if %}", "{% for %}", "{% endif %}", "{% if true %}", "{{ }}", "{{ 1 + }}", "{% unknown %}", "{{ x | nofilter }}", "{{ x is notest }}", "{{ 'a }}", "{# open", "{{ (1 }}", "{{ 1 2 }}", "{{ a[ }}", "{% set = 1 %}", "{% for x in a %}{% endif %}", "{% break %}",
    "{{ strftime_now('%%') }}", "{{ [1, [2, [3]]] | string }}", "{{ 3 is in a }}", "{{ 'A' ~ none ~ true ~ 1.5 ~ [1] }}", "{{ a | map('upper') | list }}", "{{ '%s' }}", "{{ 007 }}", "{{ 1_000 }}", "{{ 1e3 }}", "{{ .5 }}",
]

TEMPLATES = {
    # ChatML with a default system prompt, as SmolLM2 and Qwen2.5 have it, with tools.
    "chatml": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'You help.' }}{%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0]['role'] != 'system' %}{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
    # Thinking that is kept behind the last question only, as Qwen3 has it.
    "thinking": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content }}{%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    # Headers, a date, and tools in the first user message, as Llama 3 has it.
    "headers": """{{- bos_token }}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}{{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}{%- endif %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}{{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    # [INST] with alternating roles, as Llama 2 and Mistral have it.
    "inst": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
}


def render(template, values):
    try:
        return _compile_jinja_template(template).render(**values)
    except Exception:
        return None


def main():
    snippets = ["{{ %s }}" % one.strip() for line in EXPRESSIONS.split("\n")
                for one in (line.split(" || ") if " || " in line else line.split(" | "))] + SNIPPETS
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    chats = {name: [render(text, {"tools": None, "documents": None, "add_generation_prompt": True, **tokens, **conversation})
                    for conversation in CONVERSATIONS] for name, text in TEMPLATES.items()}
    golden = {"variables": VARIABLES, "snippets": [[one, render(one, VARIABLES)] for one in snippets],
              "templates": TEMPLATES, "tokens": tokens, "conversations": CONVERSATIONS, "chats": chats}
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / "jinja.json").write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")
    failed = sum(out is None for _, out in golden["snippets"])
    print(len(snippets), "snippets,", failed, "of them errors;", sum(len(c) for c in chats.values()), "chats,",
          sum(out is None for c in chats.values() for out in c), "of them errors")


if __name__ == "__main__":
    main()
