"""A command's runs in a file, where whoever is to do one finds it by its number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from repro.config.keys import as_plain, from_plain
from repro.config.schema import Config
from repro.plans.planned import Run


def write_plan(runs: Sequence[Run], path: Path) -> None:
    """Leave runs in a file, where processes that do them find them by their numbers."""
    planned = [{"configs": [as_plain(c) for c in r.configs], "labels": dict(r.labels), "title": r.title} for r in runs]
    path.write_text(json.dumps(planned))


def planned(plan: str, number: int) -> tuple[list[Config], dict[str, str], str]:
    """What `execute` takes, of a run that `write_plan` left."""
    run = json.loads(Path(plan).read_text())[number]
    return [from_plain(plain) for plain in run["configs"]], run["labels"], run["title"]
