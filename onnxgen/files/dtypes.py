"""Which dtype of each graph to take.

A dtype is told by the file's name alone (transformers.js' suffixes); what is really inside, the
graph says later.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from onnxgen.errors import OptionError
from onnxgen.files.layouts import BASE_ROLES, DTYPES, PAST_ROLE, Variants

AUTO = "auto"

Asked = str | Mapping[str, str] | None


def known(dtype: str) -> str:
    """``dtype`` itself if it is one; OptionError with the nearest if not."""
    if not isinstance(dtype, str):
        raise OptionError(f"a dtype is a {type(dtype).__name__}", wanted="a name such as 'q4'")
    if dtype not in DTYPES and dtype != AUTO:
        raise OptionError.unknown(dtype, [AUTO, *DTYPES], "dtype")
    return dtype


def choose(
    source: str,
    variants: Variants,
    asked: Asked,
    config: Mapping[str, Any],
    listed: Variants | None = None,
) -> tuple[dict[str, str], str]:
    """One dtype for each role, and a sentence on why, empty if nothing was left to choose.

    ``variants`` is what can be had, ``listed`` all there would be if a cache held the whole model.

    What the user asked for comes first and must exist; then what ``transformers.js_config`` in
    ``config`` names, as far as it exists (not for a role that a map of the user leaves out, as in
    transformers.js); then one dtype that all remaining roles have, the best in the order of
    ``DTYPES``; then the best of each role.

    Raises:
        OptionError: a dtype or a key of ``asked`` is unknown, or the model lacks it.
    """
    roles = [role for role in variants if role != PAST_ROLE]
    wanted = _by_role(source, roles, asked)
    chosen = {role: dtype for role, dtype in wanted.items() if dtype != AUTO}
    for role, dtype in chosen.items():
        if dtype not in variants[role]:
            raise _missing(source, variants, roles, role, dtype)

    free = [role for role in roles if role not in chosen]
    preferred = _configured(config, [role for role in free if role in wanted])
    there = {role: dtype for role, dtype in preferred.items() if dtype in variants[role]}
    chosen |= there
    chosen |= _best(variants, [role for role in roles if role not in chosen])

    sentence = ""
    listed = variants if listed is None else listed
    if any(len(listed[role]) > 1 for role in free):
        absent = sorted({dtype for role, dtype in preferred.items() if role not in there})
        reason = f"{_and(absent)} of config.json is missing" if absent else "none was asked for"
        reason = "config.json asks for it" if there else reason
        reason += ", and not all are in the cache" if listed != variants else ""
        sentence = _sentence(listed, chosen, roles, reason)
    if chosen["decoder"] in variants.get(PAST_ROLE, ()):
        chosen[PAST_ROLE] = chosen["decoder"]
    return {role: chosen[role] for role in variants if role in chosen}, sentence


def _by_role(source: str, roles: list[str], asked: Asked) -> dict[str, str]:
    """What is asked for each role, ``auto`` included; a map may name roles or file base names."""
    if not isinstance(asked, Mapping):
        return dict.fromkeys(roles, known(asked or AUTO))
    wanted: dict[str, str] = {}
    names = BASE_ROLES | {role: role for role in BASE_ROLES.values()}
    for name, dtype in asked.items():
        if name not in names:
            raise OptionError.unknown(name, names, "a map of dtypes")
        role = names[name]
        if role not in roles:
            raise OptionError(
                f"a dtype is asked for {name}, but {source} has none",
                wanted=f"keys for {_and(roles)}",
            )
        if wanted.setdefault(role, known(dtype)) != dtype:
            raise OptionError(f"two dtypes are asked for the {role}: {wanted[role]} and {dtype}")
    return wanted


def _missing(
    source: str, variants: Variants, roles: list[str], role: str, dtype: str
) -> OptionError:
    found = f"{source} has no {dtype} file for the {role}"
    if not any(variants[role]):
        return OptionError(
            found,
            wanted="no dtype: its files do not say theirs",
            do="leave the dtype out",
        )
    there = "; ".join(f"{name}: {', '.join(_ordered(variants[name]))}" for name in roles)
    do = "ask for one of these" if len(roles) == 1 else "ask for one of these, or give a map"
    return OptionError(found, wanted=there, do=do)


def _configured(config: Mapping[str, Any], roles: list[str]) -> dict[str, str]:
    """Role to dtype by ``transformers.js_config``; entries that make no sense count as absent."""
    section = config.get("transformers.js_config")
    dtype = section.get("dtype") if isinstance(section, dict) else None
    if isinstance(dtype, str):
        named = dict.fromkeys(roles, dtype)
    elif isinstance(dtype, dict):
        named = {BASE_ROLES[k]: v for k, v in dtype.items() if k in BASE_ROLES}
    else:
        named = {}
    return {role: named[role] for role in roles if named.get(role) in [*DTYPES]}


def _best(variants: Variants, roles: list[str]) -> dict[str, str]:
    shared = [d for d in ("", *DTYPES) if all(d in variants[role] for role in roles)]
    return {role: shared[0] if shared else _ordered(variants[role])[0] for role in roles}


def _ordered(dtypes: Iterable[str]) -> list[str]:
    return sorted(dtypes, key=["", *DTYPES].index)


def _sentence(variants: Variants, chosen: dict[str, str], roles: list[str], reason: str) -> str:
    options = _and(_ordered({dtype for role in roles for dtype in variants[role]}))
    dtypes = list(dict.fromkeys(chosen[role] for role in roles))
    if len(dtypes) == 1:
        return f"dtype {dtypes[0]} of {options}: {reason}"
    return f"dtypes {_and([f'{role} {chosen[role]}' for role in roles])} of {options}: {reason}"


def _and(words: list[str]) -> str:
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)
