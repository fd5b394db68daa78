"""List the commands: `python -m repro`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

from repro.common.suggestions import did_you_mean

_PACKAGE = Path(__file__).parent


def commands() -> dict[str, str]:
    """Module -> the first line of what it says of itself, of all that can be started by hand; nothing is imported."""
    files = [*_PACKAGE.glob("*.py"), *_PACKAGE.glob("*/__main__.py")]
    said: dict[str, str] = {}
    for file in sorted(files):
        name = file.parent.name if file.name == "__main__.py" else file.stem
        text = file.read_text()
        if '__name__ == "__main__"' in text and file != Path(__file__):
            said[name] = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if it was given words, which it takes none of."""
    words = sys.argv[1:] if arguments is None else arguments
    known = commands()
    if words and words[0] not in ("-h", "--help"):
        meant = f"repro.{words[0]}"
        is_one = words[0] in known
        hint = f"; the command is python -m {meant}" if is_one else did_you_mean(meant, [f"repro.{n}" for n in known])
        print(f"error: python -m repro takes no {words[0]!r}{hint}; alone it lists the commands.", file=sys.stderr)
        return 2
    for name, line in known.items():
        print(f"  {name:10} {line.replace('`', '')}")
    print("`python -m repro.NAME --help` says more; figures are made by `make`, which lists them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
