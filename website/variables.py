"""The page with all variables, made from their declarations."""

from __future__ import annotations

import re

from launcher import config
from launcher.config.declaration import Variable, declared
from launcher.config.variables import DERIVED, SECTIONS, VARIABLES, JobConfig
from website.markdown import code, text

PLACE = "reference/variables.md"
SCHEMA = "reference/variables.schema.json"
_NAMES = re.compile("|".join(sorted((re.escape(known.name) for known in VARIABLES), key=len, reverse=True)))
_HEAD = """\
# Variables

Each environment variable that the launcher reads, with the texts that it accepts, its default and its meaning.
[Configuration](../configuration.md) explains how they work together.

An empty value counts as unset. A flag overrides its variable. [variables.schema.json](variables.schema.json) is a JSON
Schema of all variables, for editors and admission policies:
[how to use it](../configuration.md#check-variables-before-a-job-starts).
"""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for section in SECTIONS:
        known = [each for _, each in declared(section)] + (list(DERIVED) if section is JobConfig else [])
        about = (section.__doc__ or "").partition(".")[0]
        parts += [f"## {section.__name__.removesuffix('Config')}", f"{text(about)}.", *map(_entry, known)]
    return "\n\n".join(parts) + "\n"


def _entry(variable: Variable) -> str:
    facts = [f"- Expected: {text(variable.expected)}"]
    if variable.shown_default:
        facts.append(f"- Default: {code(variable.shown_default)}")
    if config.flag_of_variable(variable.name) in config.flags():
        facts.append(f"- Flag: {code(config.flag_of_variable(variable.name))}")
    return "\n\n".join([f"### {code(variable.name)}", _sentence(variable), "\n".join(facts)])


def _sentence(variable: Variable) -> str:
    """Return what the variable means, as a sentence with links to the other variables that it names."""
    meaning = variable.meaning[0].upper() + variable.meaning[1:]

    def link(match: re.Match[str]) -> str:
        name = match[0]
        return name if name == variable.name else f"[{name}](#{name.lower()})"

    return _NAMES.sub(link, text(meaning)) + "."
