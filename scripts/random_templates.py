"""Templates made up from a grammar, for check_templates.py: valid in syntax, often wrong in types, so
that errors are compared too."""

NAMES = "a b s u e n t f l w d m q nothing x y ns loop".split()
TEXTS = ["'a'", "'Hello'", "''", "' x '", "'ß İ'", "'a,b'", "'\\n'", "'x'", "'n'", "'v'", '"it\'s"', "'%s'", "'{}'"]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "2.5", "0.1", "1e3", "10"]
TEXT_METHODS = [
    "upper()", "lower()", "strip()", "title()", "capitalize()", "split()", "split(',')", "split('l', 1)",
    "rsplit('l', 1)", "replace('l', 'x')", "startswith('H')", "endswith('d')", "find('o')", "count('l')",
    "lstrip()", "rstrip('d')", "strip('H ')", "splitlines()", "isdigit()", "isupper()", "islower()", "isspace()",
    "zfill(5)", "center(15)", "ljust(3)", "partition('o')", "rpartition('o')", "removeprefix('He')", "index('o')",
    "join(w)", "join(l)", "format(1)", "isalpha()", "rfind('l')",
]
OTHER_METHODS = [
    "get('x')", "get('nope', 3)", "items()", "keys()", "values()", "index(1)", "count(2)", "append(1)", "x", "Y",
    "n", "items", "nope", "pop()", "copy()", "update({})",
]
FILTERS = [
    "upper", "lower", "trim", "length", "string", "list", "first", "last", "join", "join(', ')", "sort", "int",
    "float", "abs", "round", "round(1)", "title", "capitalize", "reverse", "reverse|list", "unique|list", "sum",
    "min", "max", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "default('d')", "default('d', true)",
    "map('upper')|list", "map(attribute='n')|list", "map('string')|join('/')", "selectattr('k')|list",
    "selectattr('v', 'equalto', 2)|list", "rejectattr('v', 'gt', 1)|list", "select|list", "reject('none')|list",
    "items|list", "dictsort", "replace('l', 'L')", "indent", "indent(2, true)", "batch(2)|list", "wordcount",
    "truncate(5)", "count", "safe", "e", "escape", "attr('x')", "center(9)", "groupby('v')", "sort(attribute='n')",
    "sort(reverse=true)", "select('string')|list", "map('length')|list", "d",
]
TESTS = [
    "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "boolean", "true", "false",
    "integer", "float", "odd", "even", "lower", "upper", "in l", "in 'Hello'", "eq 1", "ne(2)", "gt 1", "lt 2",
    "divisibleby 2", "callable", "equalto 'a'", "ge 1", "escaped",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in", "**"]


def expression(random, depth):
    def again():
        return expression(random, depth - 1)

    if depth <= 0:
        return random.choice([random.choice(NAMES), random.choice(TEXTS), random.choice(NUMBERS), "true", "none"])
    kind = random.randrange(16)
    if kind < 2:
        return expression(random, 0)
    if kind < 5:
        left, right = again(), again()
        text = f"{left} {random.choice(OPERATORS)} {right}"
        return f"({text})" if random.random() < 0.5 else text
    if kind < 8:
        return f"({again()})|{random.choice(FILTERS)}"
    if kind == 8:
        return f"{random.choice(NAMES)} is {'not ' if random.random() < 0.3 else ''}{random.choice(TESTS)}"
    if kind == 9:
        return f"{random.choice(['s', 'u', 'e', 'q'] + TEXTS)}.{random.choice(TEXT_METHODS)}"
    if kind == 10:
        return f"{random.choice(['d', 'l', 'm', 'm[1]', 'w', 'n', 'nothing'])}.{random.choice(OTHER_METHODS)}"
    if kind == 11:
        return f"{random.choice(NAMES)}[{again()}]"
    if kind == 12:
        bounds = [str(random.choice(["", "0", "1", "2", "-1", "-2", "9"])) for _ in range(random.choice([2, 2, 3]))]
        if len(bounds) == 3 and bounds[2] in ("0", ""):
            bounds[2] = "-1"
        return f"{random.choice(['s', 'u', 'l', 'w', 'm', 'range(7)'])}[{':'.join(bounds)}]"
    if kind == 13:
        return f"({again()} if {again()} else {again()})"
    if kind == 14:
        return random.choice([f"[{again()}, {again()}]", f"({again()},)", "{'k': " + again() + ", 1: " + again() + "}"])
    return random.choice([f"not {again()}", f"-({again()})", f"range({random.randrange(5)})", f"dict(z={again()})"])


def blank(random):
    return random.choice(["", "", " ", "\n", "  \n", "\n  ", "\t", " text ", "x\n\n", "\u00a0"])


def tag(random, text):
    return "{%" + random.choice(["", "", "-", "+"]) + " " + text + " " + random.choice(["", "", "-"]) + "%}"


def statement(random, depth):
    def body():
        return blank(random) + "".join(statement(random, depth - 1) + blank(random) for _ in range(random.randrange(3)))

    def value(levels=2):
        return expression(random, random.randrange(levels + 1))

    kind = random.randrange(12) if depth > 0 else random.randrange(3)
    if kind < 3:
        return "{{" + random.choice(["", "-"]) + " " + value(3) + " " + random.choice(["", "-"]) + "}}"
    if kind == 3:
        text = tag(random, f"if {value()}") + body()
        if random.random() < 0.3:
            text += tag(random, f"elif {value()}") + body()
        if random.random() < 0.5:
            text += tag(random, "else") + body()
        return text + tag(random, "endif")
    if kind in (4, 5):
        target = random.choice(["x", "y", "x, y"])
        source = random.choice(["l", "w", "m", "s", "d", "d.items()", "range(3)", "e", "nothing", value()])
        condition = f" if {value(1)}" if random.random() < 0.2 else ""
        control = random.choice(["", "", "{% if loop.index > 1 %}{% break %}{% endif %}", "{% if loop.last %}{% continue %}{% endif %}"])
        about = random.choice(["", "{{ loop.index }}", "{{ loop.length }}", "{{ loop.last }}", "{{ loop.nextitem }}", "{{ x }}"])
        otherwise = tag(random, "else") + body() if random.random() < 0.3 else ""
        return tag(random, f"for {target} in {source}{condition}") + control + about + body() + otherwise + tag(random, "endfor")
    if kind == 6:
        return tag(random, f"set {random.choice(['x', 'y', 's', 'a'])} = {value()}")
    if kind == 7:
        return tag(random, "set ns = namespace(v=0)") + body() + tag(random, f"set ns.v = {value()}") + "{{ ns.v }}"
    if kind == 8:
        return tag(random, "set x") + body() + tag(random, "endset") + "{{ x }}"
    if kind == 9:
        name = random.choice(["f", "g"])
        call = random.choice([f"{name}()", f"{name}({value(1)})", f"{name}(p={value(1)})", f"{name}(1, 2, 3)"])
        return tag(random, f"macro {name}(p, r='def')") + body() + "{{ p }}{{ r }}" + tag(random, "endmacro") + "{{ " + call + " }}"
    if kind == 10:
        return tag(random, f"filter {random.choice(['upper', 'trim', 'length'])}") + body() + tag(random, "endfilter")
    return random.choice(["{# note #}", "{#- note -#}\n", "{% raw %} {{ x }} {% endraw %}\n"])


def random_template(random):
    return "".join(blank(random) + statement(random, random.randrange(3)) for _ in range(random.randrange(1, 4)))
