"""Renders chat templates and expressions by transformers, for TestTemplatesRenderAsTheReference of stages/internal/jinja.

usage: hf_templates.py OUT      writes OUT (.json.gz); needs transformers 5.17.0 and jinja2 3.1.6, not torch
"""
import datetime
import gzip
import itertools
import json
import random
import sys

from transformers.utils.chat_template_utils import render_jinja_template, _compile_jinja_template

TURN = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

CALLS = """{%- for c in m.tool_calls or [] %}
    {%- set f = c.function if c.function is defined else c %}
    {{- '\\n<tool_call>\\n' ~ {'name': f.name, 'arguments': f.arguments} | tojson ~ '\\n</tool_call>' }}
{%- endfor %}"""

TEMPLATES = {
    "chatml": TURN,
    "default system": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
Be helpful.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}""",
    "thinking": """{%- if tools %}
    {{- 'Tools:' }}
    {%- for tool in tools %}
        {{- "\\n" ~ tool | tojson }}
    {%- endfor %}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1, open=true) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.open and m.role == "user" and m.content is string and not (m.content.startswith('<r>') and m.content.endswith('</r>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- if m.role == "assistant" %}
        {%- set thought = '' %}
        {%- if m.reasoning_content is string %}
            {%- set thought = m.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and thought)) %}
            {{- '<a><think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<a>' + content }}
        {%- endif %}
        """ + CALLS + """
        {{- '</a>' }}
    {%- elif m.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<u>' }}{%- endif %}
        {{- '\\n<r>\\n' + content + '\\n</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '</u>\\n' }}{%- endif %}
    {%- else %}
        {{- '<' ~ m.role ~ '>' + content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<a>' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "json tools in the first request": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined else "unknown" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "[system]" + date_string + "\\n" + system_message }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) ~ "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("one call only") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}
    {%- elif message.role in ['tool', 'ipython'] %}
        {{- message.content | tojson if message.content is mapping or message.content is iterable else message.content }}
    {%- else %}
        {{- '[' + message.role + ']' + message.content | trim }}
    {%- endif %}
{%- endfor %}""",
    "list of calls": """{% if messages[0]["role"] == "system" %}{% set sys = messages[0]["content"] %}{% set rest = messages[1:] %}{% else %}{% set sys = "Answer." %}{% set rest = messages %}{% endif %}
{{ sys }}
{% if tools %}{{ tools | tojson(indent=4) }}{% endif %}

{% for m in rest %}
  {% if m['tool_calls'] %}
    {{- '[' -}}
    {% for c in m['tool_calls'] %}
      {{- {"name": c['function']['name'], "arguments": c['function']['arguments']} | tojson -}}
      {% if not loop.last %}, {% endif %}
    {% endfor %}
    {{- ']' -}}
  {% else %}
    {{ m['role'] | upper }}: {{ m['content'] }}
  {% endif %}
{% endfor %}""",
    "generation": """{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- generation %}
{%- set x = m.content or '' %}
{{- x }}
""" + CALLS + """
{{- eos_token }}
{%- endgeneration %}
{%- else %}
{{- '[' ~ loop.index ~ '/' ~ loop.length ~ ']' ~ m.content }}
{%- endif %}
{%- endfor %}{{ x is defined }}{% generation %}{% set y = 1 %}{{ y }}{% endgeneration %}{{ y is defined }}""",
    "alternation": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set s = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set s = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate!') }}{% endif %}{% if loop.index0 == 0 and s != false %}{% set content = '<<SYS>>\\n' + s + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "filters": """{% for m in messages | selectattr('role', 'in', ['user', 'assistant']) | rejectattr('content', 'none') %}
{{ loop.index }}. {{ m.content | trim | replace('e', 'E') | default('-', true) }}
{%- if loop.nextitem is defined %};{% endif %}
{% else %}
nobody
{% endfor %}
{{ messages | map(attribute='role') | join(', ') }}{% set t %}
  {{ messages | length }} messages
{% endset %}[{{ t | trim }}]
{{ tools | default([], true) | map(attribute='function.name') | list | join('|') }}""",
    "break and continue": """{% for m in messages %}
{% if m.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 4 %}{% break %}{% endif %}
    {{ m.role }}: {% if m.content %}{{ m.content[:10] }}{% endif %}

{%+ if loop.last %}  last{% endif %}
{% endfor %}
{#- a comment -#}
{% for m in messages %}{{ last is defined }}{% set last = m.role %}{% endfor %}{{ last is defined }}{{ m is defined }}{{ loop is defined }}
  {%+ if true +%}
kept{% endif %}
  end  {# another #}
""",
    "arguments": """{% for m in messages if m.tool_calls is defined %}{% for c in m.tool_calls %}
{{ c.function.name }}({% for k, v in c.function.arguments | items %}{{ k }}={{ v if v is string else v | tojson }}{{ ", " if not loop.last }}{% endfor %})
{% for k, v in c.function.arguments.items() %}{{ k }}:{{ v is number }},{{ v is mapping }},{{ v is boolean }} {% endfor %}
{% endfor %}{% endfor %}""",
    "parts": """{%- for m in messages %}
  {%- if m.content is string %}{{ m.content }}
  {%- elif m.content is none %}null
  {%- elif m.content is sequence and m.content is not mapping %}
    {%- for part in m.content %}{{ part['text'] if part['type'] == 'text' else raise_exception('only text') }}{% endfor %}
  {%- else %}{{ m.content | tojson(sort_keys=true) }}{% endif %}
{%- endfor %}""",
    "white space": """
  {% if add_generation_prompt %}
    a {{- ' b ' -}} c
  {%- endif +%}
  {%- for m in messages %}
	{{ m.role }}
      {% if loop.first %}first{% endif %}   
    {% if not loop.last -%}

   more
    {%- endif %}
  {% endfor %}

z
""",
}

random.seed(7)
TEXTS = ["Hello", "  spaces  ", "line\nbreak\n", "</think>\n\nafter", "<think>\nidea\n</think>\n\nanswer", "12345", "", "é 🙂 'quoted' \"q\"",
         "<|im_end|>", "a\tb\\c", "<r>x</r>", "{{ x }}"]
TOOLS = [{"type": "function", "function": {"name": "ls", "description": "List <files> & \"more\".", "parameters": {"type": "object",
          "properties": {"a": {"type": "boolean", "default": False}}, "required": []}}},
         {"type": "function", "function": {"name": "mv", "parameters": {"type": "object", "properties": {}, "limit": 1.0, "n": 1e-7}}}]
ARGUMENTS = [{}, {"a": True}, {"b": 1, "a": 1.5, "c": None}, {"list": [1, "x", {"é": "\u2028"}], "s": "q\"uote"}]


def conversation(i):
    messages = []
    if random.random() < 0.4:
        messages.append({"role": "system", "content": random.choice(TEXTS)})
    for _ in range(random.randint(1, 3)):
        messages.append({"role": "user", "content": random.choice(TEXTS)})
        for _ in range(random.choice([0, 0, 1, 2])):
            calls = [{"type": "function", "function": {"name": random.choice(["ls", "mv"]), "arguments": random.choice(ARGUMENTS)}}
                     for _ in range(random.choice([1, 1, 2]))]
            messages.append({"role": "assistant", "content": random.choice(["", "Text.", None]), "tool_calls": calls})
            messages += [{"role": "tool", "content": random.choice(TEXTS)} for _ in calls]
        if random.random() < 0.8:
            messages.append({"role": "assistant", "content": random.choice(TEXTS)})
    odd = random.random()
    if odd < 0.06:
        messages.append({"role": "user", "content": [{"type": "text", "text": "part"}]})
    elif odd < 0.1:
        messages.append({"role": "user", "content": {"b": 1, "a": [2]}})
    elif odd < 0.12:
        messages = messages[:-1]
    v = {"messages": messages, "tools": random.choice([None, None, TOOLS, TOOLS[:1], []]), "add_generation_prompt": random.random() < 0.5,
         "bos_token": "<s>", "eos_token": "</s>"}
    if random.random() < 0.2:
        v["enable_thinking"] = random.random() < 0.5
    return v


VALUES = ["none", "true", "false", "0", "3", "-2", "2.5", "1e20", "''", "'abc'", "'a b'", "[]", "[1, 2, 3]", "['b', 'a']", "(1, 'x')", "{}",
          "{'a': 1, 'items': 2}", "range(3)", "missing", "text", "number", "deep"]
ATOMS = [f"({a}) {o} ({b})" for o in ["+", "-", "*", "/", "//", "%", "~", "==", "<", "in", "and", "or"] for a, b in random.sample(list(itertools.product(VALUES, VALUES)), 12)]
ATOMS += [f"({v}) {s}" for s in ["| length", "| tojson", "is iterable", "is sequence", "is number", "| list | length", "| string", "| first", "| last",
                                  "| default('d', true)", "| join('-')", "is mapping", "is defined", "[0]", "[-1]", "['a']", ".a", ".items", "| trim", "[1:]", "[::-1]"]
          for v in random.sample(VALUES, 5)]
ATOMS += ["1 < 2 < 3", "3 > 2 == true", "not 1 == 2", "2 ** 3 ** 2", "-2 ** 2", "1 if false", "(1 if false) is undefined", "'a' 'b'", "'\\x41\\u00e9\\n\\q' | tojson",
          "1 is integer and 2.0 is float", "'x' is in ['x']", "missing.a", "missing['a']", "missing is defined", "deep.a.b", "deep['a']['b'] | tojson", "deep.z.y",
          "text.split()", "text.split() | tojson", "text.split(',') | tojson", "text.split(None, 1) | tojson", "text.split('') | tojson", "text.strip('xw ')", "text | upper", "text.upper().lower()",
          "text.startswith(('a', ' '))", "text.find('o')", "text.removeprefix(' ')", "text.foo", "text.title", "text.append", "[1].append", "[1].append(2)", "{'a': 1}.items", "{'a': 1}.get('b') is none",
          "{'a': 1}.get('b', 7)", "{'a': 1} | items | list | tojson", "{'a': 1}.keys() | list", "{'b': 1, 'a': 2} | tojson(sort_keys=true)", "[1, [2, {}], []] | tojson(indent=2)",
          "[1, 2] | tojson(separators=(',', ':'))", "[3, 1] | map('string') | join", "[{'a': 1}, {}] | map(attribute='a', default='?') | join(',')", "[0, 1] | select | list | length",
          "['a', 'b'] | reject('equalto', 'a') | join", "['a'] | map('nope') | list", "5 | trim", "none | trim", "1.0 | string", "1e16 | string", "1e-7", "true | string", "range(2, 9, 3) | list | tojson", "range(3) | tojson",
          "[1, 2] == [1, 2.0]", "[1] == (1,)", "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", "'b' > 'a'", "'a' < 1", "[1] < [2]", "1 == true", "1.0 == 1", "none < 1", "'é' | length", "'é🙂'[1]", "'abc'[::2]", "'abc'[5:]", "'abc'['x']",
          "namespace(a=1).a", "namespace(a=1).b is defined", "raise_exception('no')", "strftime_now('%d %b %Y')", "foo()", "text()", "(1, 2)[0]", "[1, 2][0.5]", "[[1]][0][0]", "'a' ~ 1 ~ none ~ true ~ missing", "'a' + none", "'a' + missing",
          "1 / 0", "7 // -2", "-7 % 3", "7.0 / 2", "'ab' * 3", "text | replace('o', '0', 1)", "'aaa'.replace('', '-')", "'aaa' | replace('a', 1)", "'a' | safe", "'<' | safe | tojson", "1 is not none", "not missing", "missing or 'x'",
          "[] or {} or 0", "loop is defined", "[1, 2, 3][-2:]", "[1, 2, 3][:-1:1] | tojson", "'x' in missing", "1 in 'a'", "[1] in {}", "'a' in {'a': 0}", "'a' not in ['b']", "messages is defined", "x.1.2 if false else 'n'"]
random.shuffle(ATOMS)
fixed = [a for a in ATOMS if not a.startswith("(")]
EXPRESSIONS = list(dict.fromkeys(fixed + ATOMS))[:300]


def render(template, v):
    v = dict(v, strftime_now=lambda f: datetime.datetime(2024, 7, 26).strftime(f))
    try:
        return _compile_jinja_template(template).render(**v)
    except Exception as e:
        return {"error": type(e).__name__ + ": " + str(e)[:60]}


conversations = [conversation(i) for i in range(100)]
variables = {"text": " hello, wörld x", "number": 7, "deep": {"a": {"b": [1, {"c": None}]}}}
out = {"templates": TEMPLATES, "conversations": conversations, "variables": variables,
       "renderings": {n: [render(t, dict(v, documents=None)) for v in conversations] for n, t in TEMPLATES.items()},
       "expressions": [[e, render("{{ " + e + " }}", variables)] for e in EXPRESSIONS]}
# render_jinja_template is the door of transformers; it must give what the compiled template gives.
for n, t in list(TEMPLATES.items())[:1]:
    for v, want in zip(conversations, out["renderings"][n]):
        if isinstance(want, str):
            rest = {k: x for k, x in v.items() if k not in ("messages", "tools", "add_generation_prompt")}
            got = render_jinja_template([v["messages"]], tools=v["tools"], chat_template=t, add_generation_prompt=v["add_generation_prompt"], **rest)[0][0]
            assert got == want, (got, want)
with open(sys.argv[1], "wb") as f:
    f.write(gzip.compress(json.dumps(out, ensure_ascii=False).encode(), 9, mtime=0))
bad = sum(isinstance(r, dict) for rs in out["renderings"].values() for r in rs)
print(len(TEMPLATES), "templates,", len(conversations), "conversations,", bad, "errors;", len(EXPRESSIONS), "expressions,",
      sum(isinstance(r, dict) for _, r in out["expressions"]), "errors")
