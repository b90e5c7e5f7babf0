#!/usr/bin/env python3
"""Writes tests/data/chat/templates.json: templates of our own that use what the templates of
well-known models use, single expressions for every filter, test and method, and what Jinja2 makes
of each. Ours must give the same bytes, and an error where Jinja2 raises one.

    pip install jinja2 && scripts/make_chat_fixtures.py
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import jinja_oracle
from chat_samples import CHATS, COMMON, EXTRAS, VALUES

# Own texts, in the manner of: ChatML; templates with headers and a date; those that drop the
# thoughts of earlier turns; those with [brackets] that insist on the order of turns; those with
# two roles only; those that carry state along in a namespace.
TEMPLATES = {
    "marks": """{%- for message in messages %}
    {{- '<|start|>' + message.role + '\\n' + message['content'] + '<|end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\\n' }}
{%- endif %}
""",
    "marks on lines": """{% for message in messages %}
{{ '<|start|>' ~ message.role }}
{{ message['content'] | default('', true) }}<|end|>
{% endfor %}
{% if add_generation_prompt %}
<|start|>assistant
{% endif %}
""",
    "marks with generation": """{% for message in messages %}
{% if message.role == 'assistant' %}
<|start|>assistant
{% generation %}
{{ message.content }}<|end|>
{% endgeneration %}
{% else %}
{{ '<|start|>' + message.role + '\\n' + message.content|string + '<|end|>' }}
{% endif %}
{% endfor %}
""",
    "headers": """{{- bos_token }}
{%- if custom is defined %}
    {%- set tools = custom %}
{%- endif %}
{%- if not tools_first is defined %}
    {%- set tools_first = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<h>system</h>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<e>" }}
{%- if tools_first and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Nobody spoke!") }}
    {%- endif %}
    {{- '<h>user</h>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<e>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<h>' + message['role'] + '</h>\\n\\n' + message['content'] | trim + '<e>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<h>assistant</h>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {%- for arg_name, arg_val in tool_call.arguments | items %}
            {{- arg_name + '="' ~ arg_val ~ '"' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- endif %}
        {%- endfor %}
        {{- "<e>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<h>ipython</h>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<e>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<h>assistant</h>\\n\\n' }}
{%- endif %}
""",
    "thoughts": """{%- if tools %}
    {{- '<s>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><e>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<s>system\\n' + messages[0].content + '<e>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<s>' + message.role + '\\n' + content + '<e>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning is string %}
            {%- set thoughts = message.reasoning %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last %}
            {%- if loop.last or (not loop.last and thoughts) %}
                {{- '<s>' + message.role + '\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<s>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<s>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<c>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</c>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<e>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<s>user' }}
        {%- endif %}
        {{- '\\n<r>\\n' }}
        {{- content }}
        {{- '\\n</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<e>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<s>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "brackets": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 2 %}
                {{- raise_exception("Ids are two letters long") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULTS] {"content": ' + content|string + "}[/RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tools speak here") }}
    {%- endif %}
{%- endfor %}
""",
    "two roles": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system here') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<turn>' + role + '\\n' + message['content'] | trim + '</turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<turn>model\\n'}}{% endif %}""",
    "parts": """{{ bos_token }}
{%- for message in messages -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\\n' }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model\\n'}}
{%- endif -%}
""",
    "state": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<U>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<A><calls><call>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|tojson + '\\n' + '```' + '<endcall>'}}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + '<call>' + tool['type']}}{{'<endcalls>'}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{'<endouts>' + message['content'] + '<end>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<A>' + content + '<end>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<outs><out>' + message['content'] + '<endout>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n<out>' + message['content'] + '<endout>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<endouts>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<A><think>\\n'}}{% endif %}""",
    "macros": """{%- macro json_to_python_type(json_spec) %}
{%- set basic = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
{%- if basic[json_spec.type] is defined %}
    {{- basic[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "list[" + json_to_python_type(json_spec|attr("items")) + "]" }}
{%- elif json_spec.type == "object" %}
    {{- "dict[" }}{{ json_spec.properties.keys() | join('|') }}{{ "]" }}
{%- elif json_spec.type is iterable %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}
      {{- json_to_python_type({"type": t}) }}
      {%- if not loop.last %}
        {{- "," }}
      {%- endif %}
    {%- endfor %}
    {{- "]" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{%- macro line(label, value='none', *, end) %}{% endmacro %}
""",
    "macros and calls": """{%- macro type_of(spec) %}
{%- set basic = {"string": "str", "integer": "int"} %}
{%- if spec.type is string and basic[spec.type] is defined %}
    {{- basic[spec.type] }}
{%- elif spec.type is iterable and spec.type is not string %}
    {%- for t in spec.type %}{{- type_of({"type": t}) }}{% if not loop.last %}|{% endif %}{%- endfor %}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{%- macro field(label, value='none', sep=': ') %}{{ label }}{{ sep }}{{ value }}{{ varargs }}{{ kwargs.extra }}{% endmacro %}
{%- macro box(title) %}[{{ title }}|{{ caller('x') }}|{{ caller(n=2) }}]{% endmacro %}
{% for tool in tools or [] %}
{% set f = tool.function %}
{% for name, spec in f.parameters.properties.items() %}
- {{ field(name, type_of(spec), extra='!') }}
{% endfor %}
{% endfor %}
{% call(n) box('hey') %}n={{ n }}{% endcall %}
{{ field('a') }}{{ field('a', 'b', ' = ', 'more', 'still') }}
{% set block %}
  captured {{ messages|length }}
{% endset %}
<{{ block }}>{{ block|length }}
{% set loud | upper %}quiet {{ 1 }}{% endset %}{{ loud }}
{% filter upper | replace('A', 'b') %}a shout{% endfilter %}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}
""",
    "loops": """{% for x in [1, 2, 3, 4, 5, 6] if x is odd %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.cycle('a', 'b') }} {% else %}none{% endfor %}
{% for x in [] %}{{ x }}{% else %}empty{% endfor %}
{% for x in [1] %}{{ x }}{% continue %}{% else %}no turn came to its end{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for k, v in {'a': 1, 'b': [1, 2]}.items() %}{{ k }}={{ v }};{% endfor %}
{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }} {% endfor %}
{% set outer = 'o' %}{% for x in [1, 2] %}{{ outer }}{% set outer = x %}{{ outer }}{% endfor %}{{ outer }}
{% set ns = namespace(n=0) %}{% for x in range(5) if ns.n < 3 %}{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}{{ ns.n }}
{% for c in 'äöü' %}{{ loop.index }}{{ c }}{% endfor %}
{% for row in [[1, 2], [3]] %}{% for x in row %}{{ loop.index }}{{ x }}{% endfor %}|{{ loop.index }}{% endfor %}
{% for x in [1, 1, 2, 2] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}
{% if false %}{% set never = 1 %}{% endif %}{{ never is defined }}{% if true %}{% set now = 1 %}{% endif %}{{ now }}
{% for m in messages | rejectattr('role', 'equalto', 'system') | list %}{{ m.role[0] }}{% endfor %}
{{ messages | map(attribute='role') | join(',') }} {{ messages | map(attribute='nothing', default='-') | join(',') }}
""",
    "blanks": """  {# a comment #}
start
  {% if true %}
    kept
  {% endif %}
  {%- if true -%}
    stripped
  {%- endif -%}
  {%+ if true %}
 plus
  {% endif +%}

 x {{ 1 }}
   {{- 2 -}}
   {{ 3 }}
{% raw %}
  {{ raw }} {% no %}
{% endraw %}
{%- raw -%}  {{ tight }}  {%- endraw -%}
{# one
 two #}
{#- three -#}
\tTab {% set x = 1 %} same line {% set y = 2 %}

a{% if 1 %}

b{% endif %}


""",
}

EXPRESSIONS = """
1 + 2 * 3 - 4 / 2
7 // 2 ~ -7 // 2 ~ 7 % 3 ~ -7 % 3 ~ 7 % -3
2 ** 10 ~ 2 ** -1 ~ -2 ** 2
7.5 // 2 ~ -7.5 % 2 ~ 1e3 ~ 1.5e-7 ~ 1e16 ~ 123456789012345678.0 ~ (0.1 + 0.2)
(1_000 + 1) ~ 3.0 ~ 1/3
- a ~ +b ~ -b
not a or t and f
n is none ~ n is not none ~ nothing is defined ~ nothing is undefined
a == 1.0 ~ t == 1 ~ 'a' != 'b' ~ [1, 2] == [1, 2] ~ (1, 2) == [1, 2] ~ {'a': 1} == {'a': 1}
1 < 2 < 3 ~ 1 < 2 > 3 ~ 'a' < 'b' ~ [1, 2] < [1, 3]
a in l ~ 5 not in l ~ 'ell' in s ~ 'x' in d ~ 'nope' in d
'yes' if t else 'no'
'yes' if f
('yes' if f) is defined
(l + [4]) ~ ((1,) + (2, 3)) ~ [0] * 3 ~ 'ab' * 2
a ~ b ~ n ~ t ~ l ~ d ~ nothing
[] ~ {} ~ () ~ (1,) ~ [[], {}]
l[0] ~ l[-1] ~ l[1:] ~ l[:2] ~ l[::-1] ~ s[1:4] ~ s[::-1] ~ u[2:5] ~ s[-3:] ~ l[5:]
l[10] is defined
d.x ~ d['x'] ~ d['items'] ~ d.Y[1].z ~ d.nope is defined
m[0].n ~ m.0.n
s.upper() ~ s.lower() ~ s.title() ~ s.capitalize() ~ u.upper() ~ u.lower() ~ u.title()
u.strip() ~ '|' ~ u.lstrip() ~ '|' ~ u.rstrip() ~ '|' ~ 'xxaxx'.strip('x') ~ 'abc'.rstrip('cb')
s.split() ~ s.split('o') ~ s.split('o', 1) ~ s.rsplit('o', 1) ~ ' a  b '.split() ~ ' a b c '.split(none, 1) ~ ' a b c '.rsplit(none, 1)
'a\\nb\\r\\nc'.splitlines() ~ 'a\\nb\\n'.splitlines(true)
s.replace('l', 'L') ~ s.replace('l', 'L', 1) ~ 'ab'.replace('', '-')
s.startswith('He') ~ s.endswith('ld') ~ s.startswith(('x', 'H')) ~ s.startswith('e', 1) ~ s.endswith('o', 0, 5)
s.find('o') ~ s.rfind('o') ~ s.find('zz') ~ u.find('🙂') ~ s.index('W') ~ s.count('l') ~ 'aaa'.count('')
','.join(w) ~ '-'.join('abc')
'%s is %d years, %.2f and %5s|%-5s|%05d %r %%' % ('x', 3, 2.5, 'r', 'l', 42, 'q')
'%s' % 5 ~ '%s' % [1, 2]
'{} {} {{}}'.format(1, 'x') ~ '{0}{1}{0}'.format('a', 'b') ~ '{k}'.format(k=3)
'abc'.center(9) ~ '|' ~ 'abc'.ljust(5, '.') ~ 'abc'.rjust(5) ~ '-42'.zfill(6) ~ 'ab'.center(5)
'a=b=c'.partition('=') ~ 'a=b=c'.rpartition('=') ~ 'abc'.partition('x')
'prefix-x'.removeprefix('prefix-') ~ 'x.txt'.removesuffix('.txt')
'abc'.isalpha() ~ '12'.isdigit() ~ 'a1'.isalnum() ~ ' '.isspace() ~ 'AB'.isupper() ~ 'ab'.islower() ~ ''.isalpha()
d.get('x') ~ d.get('no') ~ d.get('no', 5) ~ d.keys() ~ d.values() ~ d.items()
d.keys() | list ~ (d.items() | list)[0]
l.index(2) ~ l.count(1) ~ (1, 2).index(2)
s | upper ~ s | lower ~ s | title ~ 'a-b (c) d_e' | title ~ s | capitalize ~ 'ß' | upper ~ 'ΑΣ ΟΔΟΣ' | lower
u | trim ~ '|' ~ 'xxaxx' | trim('x') ~ n | trim ~ 5 | upper
s | length ~ u | length ~ l | count ~ d | length ~ e | length ~ nothing | length
s | replace('l', 'L') ~ s | replace('l', 'L', 2) ~ 5 | replace(5, 6)
l | join ~ l | join(', ') ~ m | join('-', attribute='n') ~ [1, n, t, 2.0] | join(',')
l | first ~ l | last ~ e | first is defined ~ s | first ~ d | first ~ [] | last is defined
l | sort ~ l | sort(reverse=true) ~ w | sort ~ w | sort(case_sensitive=true) ~ m | sort(attribute='n') | map(attribute='n') | list
m | sort(attribute='v,n') | map(attribute='n') | list
w | unique | list ~ ['a', 'A', 'b'] | unique(true) | list
l | reverse | list ~ s | reverse
l | list ~ s | list ~ d | list ~ (1, 2) | list
d | dictsort ~ {'b': 1, 'A': 2} | dictsort ~ {'b': 1, 'A': 2} | dictsort(true) ~ {'b': 1, 'A': 2} | dictsort(by='value') ~ {'b': 1, 'A': 2} | dictsort(reverse=true)
d | items | list ~ nothing | items | list
m | map(attribute='k.q') | list | length
m | map(attribute='k.q', default=0) | list
w | map('upper') | list ~ l | map('string') | list ~ w | map('replace', 'a', 'x') | list
m | selectattr('v', 'equalto', 2) | map(attribute='n') | list ~ m | selectattr('k') | list | length ~ m | selectattr('k', 'defined') | list | length
m | rejectattr('v', 'eq', 2) | list ~ l | select('gt', 1) | list ~ l | reject('odd') | list ~ [0, 1, ''] | select | list
m | selectattr('v', '>', 1) | list | length ~ m | selectattr('n', 'in', ['b', 'c']) | list | length
m | groupby('v') | list
nothing | default('x') ~ n | default('x') ~ n | default('x', true) ~ e | d('y', boolean=true) ~ nothing | default
a | string ~ l | string ~ n | string
'42' | int ~ ' 7 ' | int ~ '4.9' | int ~ 'x' | int ~ 'x' | int(3) ~ 2.9 | int ~ t | int ~ n | int ~ '-5' | int
'1.5' | float ~ 'x' | float ~ 3 | float ~ 'x' | float(1.0)
-3 | abs ~ -2.5 | abs ~ (0 - 3) | abs
2.567 | round(2) ~ 2.5 | round ~ 3.5 | round ~ 2.4 | round(0, 'ceil') ~ 2.6 | round(method='floor') ~ 5 | round ~ 0.125 | round(2)
l | max ~ l | min ~ w | min ~ m | max(attribute='v') ~ [] | max is defined
l | sum ~ m | sum(attribute='v') ~ l | sum(start=10)
l | batch(2) | list ~ l | batch(2, 0) | list
'a\\nb\\n\\nc' | indent ~ 'a\\nb' | indent(2, true) ~ 'a\\n\\nb' | indent(2, blank=true) ~ 'a\\nb' | indent('> ')
'foo bar baz qux' | truncate(9) ~ 'foo bar baz qux' | truncate(9, true) ~ 'foo bar baz qux' | truncate(11) ~ 'foo bar baz qux' | truncate(11, false, '...', 0)
'one two three' | wordcount ~ 'abc' | center(7) ~ '%s-%s' | format(1, 2)
d | tojson ~ q | tojson ~ [1, 2.0, n, t, 'ü', 1e20, 1e-7] | tojson
d | tojson(indent=2)
[] | tojson ~ {} | tojson ~ [[]] | tojson(indent=2) ~ {'a': {}} | tojson(indent=2)
'ü🙂' | tojson(ensure_ascii=true) ~ {'b': 1, 'a': 2} | tojson(sort_keys=true) ~ [1, 2] | tojson(separators=(',', ':'))
{1: 2, none: 3, true: 4, 1.5: 5} | tojson ~ (1, 'x') | tojson ~ d | tojson(indent='--')
q ~ [q] ~ ['\\'', '"', '\\'"', '\\\\', '\\x00é\\u200b🙂']
'<a&b>' | safe ~ '<a&b>' | e ~ ('<' | safe + '<') ~ ('<' + '<' | safe) ~ ['<' | safe]
'<b>' | escape | length ~ ('a' | safe) is escaped
a is number ~ s is string ~ l is sequence ~ d is mapping ~ d is sequence ~ s is sequence ~ s is iterable ~ a is iterable ~ n is iterable ~ nothing is iterable
t is boolean ~ t is true ~ f is false ~ a is true ~ a is integer ~ b is float ~ t is integer ~ t is number
a is odd ~ a is even ~ 6 is divisibleby 3 ~ a is eq 1 ~ a is ne(2) ~ a is lt 2 ~ a is in [1] ~ a is not in [1]
s is lower ~ 'abc' is lower ~ 'ABC' is upper ~ n is sameas none ~ t is sameas true ~ range is callable ~ a is callable
(l | map('string')) is iterable ~ (l | map('string')) is sequence ~ ('y' if (l | select('gt', 99)) else 'n')
range(5) ~ range(5) | list ~ range(2, 8, 3) | list ~ range(5, 0, -2) | list ~ range(3)[1] ~ range(3) | length ~ range(0)
dict(a=1, b=2) ~ dict([('x', 1)], y=2) ~ dict(d)
namespace(a=1).a ~ namespace(a=1).b is defined
strftime_now('%Y-%m-%d %H:%M:%S %d %b %Y %A %j') ~ strftime_now('')
'a' 'b' "c" ~ 'tab\\there' ~ "q\\"q" ~ '\\u00e9\\x41\\101\\d'
true and none ~ (0 or 'x') ~ ('' and 'y') ~ (none or false) ~ (1 and 2)
a if a > 0 else b if b else n
[a, b, s][0] ~ {'k': [1, {'j': 2}]}['k'][1]['j'] ~ {'k': 1}.k
(a, b) ~ (a) ~ ((a, b), l)
l | length > 2 and s | length == 11
'x' ~ 1 ~ 2 + 'y'
not n ~ not not s ~ (not l) | string
s[0] | lower ~ s.split(' ')[1][0:2] | upper
m[1]['k']['q'] + l[0] * 2 - (a - 5)
'a,b;c'.replace(';', ',').split(',') | map('upper') | join('+')
messages is defined and messages[0] is defined
loop is defined
1 if nothing else 2 if nothing else 3
a.real is defined or true
'%d%%' % 5 ~ '%5.1f' % 2.25 ~ '%x' % 255 ~ '%e' % 12345.678 ~ '%g' % 0.0001
u[-2] ~ u[3] ~ (u | list)[2]
[1, [2, [3, [4]]]] ~ {'a': {'b': {'c': ('t',)}}}
'abc' is in 'xabcx' ~ 1 is in {1: 2}
'x' if 'a' is string and not n else 'y'
2 is divisibleby(2) and 'q' is not none
nothing == nothing ~ nothing == none ~ nothing in [nothing] ~ n == none
(t + t) ~ t * 3 ~ 1 == true ~ 0 == false
"Aé\\n" | tojson | tojson
'\\t x \\n' | trim | length
w | map('first') | list ~ w | map('length') | sum
(m | selectattr('k', 'defined') | first).n ~ (m | map(attribute='v') | list)[-1]
l | map('int') | map('float') | list
d.items() | length ~ d.keys() | first ~ ('x' in d.keys()) ~ (1 in d.values())
'İI ǅ ŉ ΐ' | lower ~ 'ǆ ŉ ΐ ﬃ' | upper ~ 'ǆabc ﬃx' | capitalize ~ "they're bill's" | title
""".strip().split("\n")
ERRORS = """
{{ nothing.x }}
{{ nothing + 1 }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ n.x.y }}
{{ l.append(4) }}
{{ d.update({}) }}
{{ 'a' < 1 }}
{{ 1 in 2 }}
{{ range(1000000) }}
{{ raise_exception('told so') }}
{{ s.nope() }}
{{ a() }}
{{ l | map('nope') | list }}
{{ nothing | tojson }}
{{ [range] | tojson }}
{% for x in 5 %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% set n.x = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ (l | map('string')) | length }}
{% if %}{% endif %}
{% if a %}
{% endif %}
{{ a
{{ a }
{% nope %}
{{ 'unclosed }}
{# open
{% raw %} open
{{ [1, 2 }}
{{ a b }}
{{ | upper }}
{{ a | nope }}
{{ a is nope }}
{{ a is none is none }}
{% for in l %}{% endfor %}
{% for x in l %}
{% else %}{% else %}{% endfor %}
{% break %}
{% set 5 = a %}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
{% endfor %}
{{ s.join([1]) }}
{{ 'a'.split('') }}
{{ l[0:1:0] }}
{{ s.index('zz') }}
{{ '%d' % 'x' }}
{{ '%s %s' % (1,) }}
{{ {[]: 1} }}
{{ caller() }}
{{ d.__class__.x }}
{{ ''.__class__() }}
""".strip().split("\n")


def result(source, variables):
    try:
        text, spans = jinja_oracle.render(source, variables)
    except Exception:  # every kind of error is an error in ours
        return {"error": True}
    return {"text": text, **({"generation": spans} if spans else {})}


def main():
    fixtures = []
    for name, source in TEMPLATES.items():
        cases = []
        for chat, messages in CHATS.items():
            for extra in EXTRAS:
                variables = {**COMMON, "messages": messages, **EXTRAS[extra]}
                cases.append({"chat": chat, "extra": extra, **result(source, variables)})
        fixtures.append({"name": name, "template": source, "cases": cases})
    for number, expression in enumerate(EXPRESSIONS):
        # Each part on its own, and all of them as one expression, where ~ binds tighter than most.
        for kind, source in (
            ("expression", "{{ " + " }}|{{ ".join(expression.split(" ~ ")) + " }}"),
            ("joined", "{{ " + expression + " }}"),
        ):
            fixtures.append(
                {"name": f"{kind} {number}", "template": source, "cases": [result(source, VALUES)]}
            )
    for number, source in enumerate(ERRORS):
        case = result(source, VALUES)
        if "error" not in case:
            sys.exit(f"this should be an error: {source} gives {case}")
        fixtures.append({"name": f"error {number}", "template": source, "cases": [case]})
    for fixture in fixtures:
        if fixture["name"].startswith("expression") and "error" in fixture["cases"][0]:
            try:
                jinja_oracle.render(fixture["template"], VALUES)
            except Exception as error:
                print("this expression is an error:", fixture["template"], error)
    folder = pathlib.Path(__file__).parent.parent / "tests/data/chat"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "templates.json", "w") as file:
        # A template a line, so that changes can be read.
        head = {"values": VALUES, "common": COMMON, "chats": CHATS, "extras": EXTRAS}
        file.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "fixtures": [\n')
        file.write(",\n".join(json.dumps(fixture, ensure_ascii=False) for fixture in fixtures))
        file.write("\n]}\n")
    print(f"{len(fixtures)} templates, {sum(len(f['cases']) for f in fixtures)} cases")


main()
