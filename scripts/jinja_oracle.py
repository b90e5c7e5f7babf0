"""Jinja2 set up as transformers sets it up for chat templates, written from its documentation: the
sandbox, trim_blocks, lstrip_blocks, loop controls, {% generation %}, and its own tojson.

Used by make_chat_fixtures.py and check_templates.py. Needs the packages jinja2 and (there only)
transformers."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2025, 7, 4, 9, 5, 3)  # what strftime_now tells, here and in our tests


class Generation(jinja2.ext.Extension):
    """{% generation %} .. {% endgeneration %}: text as any other, and the place of it noted.
    render() hands in `pieces`, which holds what was written so far."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    def _note(self, caller):
        text = caller()
        begin = len("".join(self.environment.pieces).encode())
        self.environment.spans.append([begin, begin + len(text.encode())])
        return text


class PlainNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        if any(str(name).startswith("_") for name in values):
            raise jinja2.exceptions.SecurityError("underscore")
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        if str(name).startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore")
        jinja2.utils.Namespace.__setitem__(self, name, value)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["namespace"] = PlainNamespace
    return env


def render(source, variables):
    """The text and the spans of generation blocks in bytes; an exception if Jinja2 raises one."""
    env = environment()
    env.pieces, env.spans = [], []
    template = env.from_string(source)
    for piece in template.generate(**variables):
        env.pieces.append(piece)
    return "".join(env.pieces), env.spans
