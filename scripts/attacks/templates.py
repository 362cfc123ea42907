"""Makes fixtures/attacks/templates: chat templates that would leave the sandbox, or never end.

A case is ``<name>.jinja``, rendered for one message; what would be large in git, and says the same
thing many times, is written out by :func:`source`. In a bomb ``size`` is nearly the longest text.
"""

import json
from pathlib import Path

PLACE = Path(__file__).parents[2] / "fixtures" / "attacks" / "templates"
REFUSED, NOTHING, RUNS = "ChatTemplateError", "shows nothing", "runs"

# Name: source, what must happen. What is underscored is undefined, and shows nothing where it is
# only looked at.
ESCAPES = {
    "mro": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", REFUSED),
    "class-of-messages": ("{{ messages.__class__.__init__.__globals__ }}", REFUSED),
    "class-by-item": ("{{ ''['__class__']['__mro__'] }}", REFUSED),
    "attr-filter": ("{{ '' | attr('__class__') | attr('__mro__') | attr('x') }}", REFUSED),
    "map-attribute": ("{{ messages | map(attribute='__class__.__mro__') | list }}", REFUSED),
    "lipsum": ("{{ lipsum.__globals__['os'].popen('id').read() }}", REFUSED),
    "format": ("{{ '{0.__class__.__mro__}'.format('') }}", REFUSED),
    "stored-format": ("{% set f = '{0.__class__.__mro__}'.format %}{{ f(0) }}", REFUSED),
    "listed-format": ("{% set m = ['{0.__class__.__mro__}'.format][0] %}{{ m('') }}", REFUSED),
    "format-map": ("{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}", REFUSED),
    "called-format": ("{{ ['{0.__class__}'.format] | map('call') | list }}", REFUSED),
    "namespace-dunder": ("{{ namespace.__init__.__globals__ }}", REFUSED),
    "namespace-attrs": ("{% set n = namespace(x=1) %}{{ n._Namespace__attrs.x }}", REFUSED),
    "namespace-set-dunder": (
        "{% set n = namespace() %}{% set n.__class__ = 1 %}{{ n.y }}",
        NOTHING,
    ),
    "cycler": ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", REFUSED),
    "joiner": ("{{ joiner.__init__.__globals__.os }}", REFUSED),
    "own-function": ("{{ raise_exception.__globals__['__builtins__'] }}", REFUSED),
    "own-code": ("{{ strftime_now.__code__.co_consts }}", REFUSED),
    "macro": ("{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}", REFUSED),
    "self": ("{{ self._TemplateReference__context.vars }}", REFUSED),
    "loop-frame": ("{% for m in messages %}{{ loop._iterator.gi_frame }}{% endfor %}", REFUSED),
    "generator-frame": ("{{ (messages | map('upper')).gi_frame.f_globals }}", REFUSED),
    "append": ("{{ messages.append(1) }}", REFUSED),
    "clear": ("{{ messages.clear() }}", REFUSED),
    "update": ("{{ messages[0].update({'role': 'x'}) }}", REFUSED),
    "pop": ("{{ messages[0].pop('role') }}", REFUSED),
    "setdefault": ("{{ messages[0].setdefault('x', 1) }}", REFUSED),
    "do-append": ("{% do messages.append(1) %}", REFUSED),
    "include": ("{% include '/etc/passwd' %}", REFUSED),
    "import": ("{% import 'os' as os %}", REFUSED),
    "extends": ("{% extends 'x' %}", REFUSED),
    "tofile": ("{{ messages[0].content.tofile('x') }}", REFUSED),
    "save": ("{{ messages[0].content.save('x') }}", REFUSED),
    "tells-content": ("{{ raise_exception(messages[0].content) }}", REFUSED),
    "tells-content-by-name": ("{{ messages[messages[0].content].x }}", REFUSED),
    "tells-content-by-attribute": ("{{ (messages | attr(messages[0].content)).x }}", REFUSED),
}

S = "{% set s = 'a' * size %}"
DOUBLES = (
    "{% set n = namespace(l=[1], m=[1], t=(1,)) %}{% for i in range(60) %}"
    "{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% set n.t = (n.t, n.t) %}{% endfor %}"
)
EVER = "{% for a in range(99999) %}{% for b in range(99999) %}"
ENDED = "{% endfor %}{% endfor %}"
MANY = "{% for i in range(99999) %}"
BOMBS = {
    "nested-loops": f"{EVER}{ENDED}",
    "nested-output": f"{EVER}{{{{ b }}}}{ENDED}",
    "nested-lengths": f"{EVER}{{{{ loop.length }}}}{ENDED}",
    "nested-sorting": f"{MANY}{{% set x = range(99999) | list | sort %}}{{% endfor %}}",
    "nested-search": f"{S}{MANY}{{{{ s.count('ab') }}}}{{% endfor %}}",
    "recursive-macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive-macro-twice": "{% macro f(n) %}{{ f(n-1) }}{{ f(n-1) }}{% endmacro %}{{ f(900) }}",
    "recursive-macro-wide": (
        "{% macro f(n) %}{% for i in range(99) %}{{ f(n-1) if n }}{% endfor %}{% endmacro %}"
        "{{ f(20) }}"
    ),
    "recursive-block": "{% block a %}{{ self.a() }}{% endblock %}",
    "recursive-loop": DOUBLES + "{% for a in n.l recursive %}{{ loop(a) }}{% endfor %}",
    "doubles-shown": DOUBLES + "{{ n.l }}",
    "doubles-json": DOUBLES + "{{ n.l | tojson }}",
    "doubles-equal": DOUBLES + "{{ n.l == n.m }}",
    "doubles-is-equal": DOUBLES + "{{ n.l is eq n.m }}",
    "doubles-in": DOUBLES + "{{ n.l in [n.m] }}",
    "doubles-hashed": DOUBLES + "{{ {}[n.t] }}",
    "doubles-key": DOUBLES + "{{ {n.t: 1} | length }}",
    "doubles-get": DOUBLES + "{{ {}.get(n.t) }}",
    "doubles-dict": DOUBLES + "{{ dict([(n.t, 1)]) | length }}",
    "doubles-concat": DOUBLES + "{{ n.l ~ '' }}",
    "doubles-percent": DOUBLES + "{{ '%s' % (n.l,) }}",
    "doubles-format": DOUBLES + "{{ '{}'.format(n.l) }}",
    "doubles-join": DOUBLES + "{{ n.l | join }}",
    "doubles-string": DOUBLES + "{{ n.l | string | length }}",
    "doubles-sort": DOUBLES + "{{ [n.l, n.m] | sort | length }}",
    "doubles-unique": DOUBLES + "{{ [n.t, n.t] | unique | list | length }}",
    "doubles-map": DOUBLES + "{{ [n.l] | map('string') | list | length }}",
    "doubles-select": DOUBLES + "{{ [n.m] | select('eq', n.l) | list | length }}",
    "doubles-group": DOUBLES + "{{ [{'a': n.l}, {'a': n.m}] | groupby('a') | list | length }}",
    "doubles-print": DOUBLES + "{{ n.l | pprint }}",
    "doubles-index": DOUBLES + "{{ [n.m].index(n.l) }}",
    "doubles-raised": DOUBLES + "{{ raise_exception(n.l) }}",
    "doubles-replaced": DOUBLES + "{{ n.l | replace('a', 'b') | length }}",
    "doubles-items": DOUBLES + "{{ {'a': n.l}.items() }}",
    "doubles-changed": DOUBLES + (
        "{% for i in [n.l, n.m] %}{{ loop.changed(i) }}{% endfor %}{{ n.l }}"
    ),
    "doubles-cycler": (
        "{% set n = namespace(l=1) %}{% for i in range(60) %}"
        "{% set n.l = cycler(n.l, n.l).items %}{% endfor %}{{ n.l }}"
    ),
    "doubles-varargs": DOUBLES + "{% macro f() %}{{ varargs }}{% endmacro %}{{ f(n.l, n.l) }}",
    "deep": "{% set n = namespace(l=1) %}" + MANY + "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
    "multiplied": S + "{{ s * 100 }}",
    "multiplied-turned": S + "{{ 10 ** 8 * s }}",
    "multiplied-list": "{{ ([0] * 10 ** 9) | length }}",
    "multiplied-bytes": "{{ 'a'.encode() * 10 ** 10 }}",
    "concatenated": S + "{{ s ~ s ~ s }}",
    "joined": S + "{{ ([s] * 99999) | join | length }}",
    "joined-by": S + "{{ range(99999) | join(s) | length }}",
    "joined-attribute": S + "{{ ([{'x': s}] * 99999) | join(attribute='x') | length }}",
    "joined-method": S + "{{ ''.join([s] * 99999) | length }}",
    "output": S + "{% for i in range(99) %}{{ s }}{% endfor %}",
    "output-escaped": "{% autoescape true %}" + S + MANY + "{{ s }}{% endfor %}{% endautoescape %}",
    "output-of-macro": (
        S + "{% macro f() %}" + MANY + "{{ s }}{% endfor %}{% endmacro %}{{ f() | length }}"
    ),
    "output-of-set": S + "{% set x %}" + MANY + "{{ s }}{% endfor %}{% endset %}",
    "output-of-filter": S + "{% filter length %}" + MANY + "{{ s }}{% endfor %}{% endfilter %}",
    "output-of-call": (
        S + "{% macro f() %}{{ caller() | length }}{% endmacro %}{% call f() %}"
        + MANY + "{{ s }}{% endfor %}{% endcall %}"
    ),
    "held-in-list": (
        "{% set n = namespace(l=[]) %}" + S + MANY + "{% set n.l = n.l + [s[1:] ~ i] %}{% endfor %}"
    ),
    "held-in-macros": "{% macro f(s) %}{{ f(s[1:] ~ 'a') }}{% endmacro %}" + S + "{{ f(s) }}",
    "held-ranges": (
        "{% set n = namespace(l=[]) %}" + MANY
        + "{% set n.l = n.l + [range(99999) | list] %}{% endfor %}"
    ),
    "center": "{{ 'a' | center(10 ** 10) }}",
    "ljust": "{{ 'a'.ljust(10 ** 10) }}",
    "zfill": "{{ '1'.zfill(10 ** 10) }}",
    "ljust-bytes": "{{ 'a'.encode().ljust(10 ** 10) }}",
    "to-bytes": "{{ (1).to_bytes(10 ** 10, 'big') }}",
    "expandtabs": "{{ '\t'.expandtabs(10 ** 10) }}",
    "indent": "{{ ('\n' * 10 ** 6) | indent(10 ** 6) }}",
    "indent-other-lines": "{{ ('\u2028' * size) | indent(100, blank=True) | length }}",
    "wordwrap": "{{ ('a ' * 10 ** 6) | wordwrap(1, wrapstring='b' * 10 ** 6) }}",
    "percent-width": "{{ '%1000000000d' % 1 }}",
    "percent-width-filter": "{{ '%1000000000d' | format(1) }}",
    "percent-star": "{{ '%*d' % (10 ** 10, 1) }}",
    "percent-many": S + "{{ ('%s' * 99999) % ((s,) * 99999) }}",
    "percent-many-named": S + "{{ ('%(a)s' * 99999) % {'a': s} }}",
    "format-width": "{{ '{:1000000000}'.format(1) }}",
    "format-width-given": "{{ '{0:>{1}}'.format(1, 10 ** 10) }}",
    "format-width-text": "{{ '{0:>{1}}'.format(1, '10000000000') }}",
    "format-width-item": "{{ '{0[1]:{0[0]}}'.format([10 ** 10, 1]) }}",
    "format-map-width": "{{ '{x:{w}}'.format_map({'x': 1, 'w': 10 ** 10}) }}",
    "format-many": S + "{{ ('{0}' * 99999).format(s) | length }}",
    "replaced": S + "{{ s.replace('a', s) | length }}",
    "replaced-nothing": S + "{{ s.replace('', s) | length }}",
    "replaced-by-name": S + "{{ s | replace(new=s, old='a') | length }}",
    "replaced-in-list": S + "{{ ([1] * 9999) | replace(',', s) | length }}",
    "replaced-in-number": S + "{{ (10 ** 4000) | replace('0', s) | length }}",
    "translated": S + "{{ s.translate({97: s}) | length }}",
    "json-indent": (
        "{% set n = namespace(l=[1] * 50000) %}{% for i in range(60) %}{% set n.l = [n.l] %}"
        "{% endfor %}{{ n.l | tojson(indent=100) | length }}"
    ),
    "json-separators": S + "{{ ([1] * 9999) | tojson(separators=(s, ':')) | length }}",
    "striptags": "{{ ('<!---->' * 100000) | striptags }}",
    "striptags-method": "{{ (('<!---->' * 100000) | safe).striptags() }}",
    "urlize": "{{ ('a.com ' * 100000) | urlize }}",
    "pprint": "{{ ([1] * 60000) | pprint }}",
    "sum-of-lists": "{{ ([[1]] * 60000) | sum(start=[]) | length }}",
    "round": "{{ 1 | round(1000000000, 'ceil') }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": (
        "{% set n = namespace(x=3) %}" + MANY + "{% set n.x = n.x * n.x %}{% endfor %}"
    ),
    "number-of-text": "{{ ('f' * size) | int(base=16) > 0 }}",
    "batch": "{{ [1] | batch(10 ** 10, 0) | list }}",
    "slice": "{{ [1] | slice(10 ** 10) | list }}",
    "date": "{{ strftime_now('%c' * 50000) }}",
    "range": "{{ range(10 ** 9) | list }}",
}  # fmt: skip

# Written out: too large for git, or all the same.
WRITTEN = {
    "huge": ("a template of ten million characters", REFUSED),
    "constants": ("two thousand constants to be worked out before any rendering", RUNS),
    "held-in-names": ("a thousand names for long texts", REFUSED),
    "held-in-slices": ("a thousand names for slices of a long text", REFUSED),
    "concatenated-often": ("one ~ of ten thousand long texts", REFUSED),
    "long-sum": ("a sum of thirty thousand numbers", REFUSED),
    "long-dots": ("an attribute of an attribute, thirty thousand times", REFUSED),
    "long-nots": ("thirty thousand times not", REFUSED),
    "long-filters": ("ten thousand filters in a row", REFUSED),
    "deep-brackets": ("five thousand brackets in each other", REFUSED),
    "deep-ifs": ("five thousand conditions in each other", REFUSED),
    "long-elif": ("five thousand branches", REFUSED),
    "open-comments": ("fifty thousand comments that do not end", REFUSED),
    "open-texts": ("thirty thousand texts that do not end", REFUSED),
    "spaces": ("a tag of hundred thousand spaces", REFUSED),
}


def source(name: str) -> str:
    """The template of a case that is written out."""
    match name:
        case "huge":
            return "x" * 10_000_000
        case "constants":
            return "{% if 0 %}" + "{{'a'|center(9999)}}" * 2000 + "{% endif %}done"
        case "held-in-names":
            return S + "".join(f"{{% set v{i} = s ~ 'a' %}}" for i in range(1000))
        case "held-in-slices":
            return S + "".join(f"{{% set v{i} = s[1:] %}}" for i in range(1000))
        case "concatenated-often":
            return S + "{{ " + " ~ ".join(["s"] * 10_000) + " }}"
        case "long-sum":
            return "{{ " + "+".join(["1"] * 30_000) + " }}"
        case "long-dots":
            return "{{ a" + ".b" * 30_000 + " }}"
        case "long-nots":
            return "{{ " + "not " * 30_000 + "1 }}"
        case "long-filters":
            return "{{ 1" + "|int" * 10_000 + " }}"
        case "deep-brackets":
            return "{{ " + "[" * 5000 + "]" * 5000 + " }}"
        case "deep-ifs":
            return "{% if 1 %}" * 5000 + "{% endif %}" * 5000
        case "long-elif":
            return "{% if 0 %}" + "{%elif 0%}" * 5000 + "{% endif %}"
        case "open-comments":
            return "{#" * 50_000
        case "open-texts":
            return '{{ "' * 30_000
        case _:
            return "{%" + " " * 100_000


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, (text, must) in ESCAPES.items():
        (PLACE / f"{name}.jinja").write_text(text, encoding="utf-8")
        lines.append({"name": name, "tries": "to leave the sandbox", "must": must})
    for name, text in BOMBS.items():
        (PLACE / f"{name}.jinja").write_text(text, encoding="utf-8")
        lines.append({"name": name, "tries": "to take all time or memory", "must": REFUSED})
    lines += [{"name": n, "tries": tries, "must": must} for n, (tries, must) in WRITTEN.items()]
    text = ",\n".join(f"  {json.dumps(line, ensure_ascii=False)}" for line in lines)
    (PLACE / "cases.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
