"""Commands' arguments: what is wrong with one is said in a sentence, as of every other faulty request."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from repro.common.suggestions import did_you_mean

_KINDS = {"int": "a whole number", "float": "a number"}


class Parser(argparse.ArgumentParser):
    """argparse's parser, whose options must be written out, and which tells an error without the command's usage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """End the command with status 2 and one sentence."""
        self.exit(2, f"error: {self._sentence(message)}\n")

    def _sentence(self, message: str) -> str:
        """What argparse says of a faulty command line, as this suite says it; what it rarely says, in its own words."""
        if found := re.fullmatch(r"argument (\S+?)(?:/\S+)?: invalid (\w+) value: (.*)", message):
            name, kind, value = found.groups()
            return f"{name} is {value}; it must be {_KINDS.get(kind, kind)}."
        if found := re.fullmatch(r"argument (\S+?)(?:/\S+)?: invalid choice: '(.*)' \(choose from (.*)\)", message):
            name, value, choices = found.groups()
            known = [choice.strip(" '") for choice in choices.split(",")]
            return f"{name} is {value!r}; it must be one of {', '.join(known)}{did_you_mean(value, known)}."
        if found := re.fullmatch(r"unrecognized arguments: (\S+).*", message):
            word = found.group(1)
            return f"{word} is unknown{did_you_mean(word, self.options())}; {self.prog} --help lists what there is."
        if found := re.fullmatch(r"the following arguments are required: (.*)", message):
            return f"{found.group(1)} is missing; {self.prog} --help says what it is."
        return f"{message.removeprefix('argument ')}; {self.prog} --help lists what there is."

    def options(self) -> Iterator[str]:
        """All names of its options."""
        for action in self._actions:
            yield from action.option_strings
