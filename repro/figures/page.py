"""Brings the computed parts of a target's page up to date; its prose is written by hand.

A page opens with its finding, between `<!-- finding -->` and `<!-- end finding -->`: three sentences, each a paragraph
under its own bold word, on what the paper says, what we find (and at which scale), and why; or one that says that it
was not run. The picture of the most advanced published scale follows, and then what else there is to say of it, in
paragraphs `**We find, too**: ...` and `**Why, further**: ...`, of the same scale if they name no other. For each
published scale a page has a block between `<!-- results SCALE -->` and `<!-- end SCALE -->`. Everything in it comes
from the files in `paper_figures/results/<target>-<scale>/`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

from repro.common.errors import ReproError, told_as
from repro.figures import frame
from repro.figures.claims import markdown, read, tally
from repro.figures.targets import ROOT, SCALES
from repro.tracking import staleness

PAGES = ROOT / "paper_figures"

SAYS, FIND, WHY, NOT_RUN = ("The paper says", "The post says", "We ask"), "We find", "Why", "Not run yet"
"""What the paragraphs of a finding begin with; the first with one of several."""

_DIGITS = 12
"""Of a commit."""

_SHORTEST = 0.1
"""Seconds; of what took less it does not matter how they were counted."""

_MOST_LINES = 14
"""What is longer is folded: a table of more than twelve rows."""

_FINDING = re.compile(r"\A# [^\n]+\n\n<!-- finding -->\n(.*?)\n<!-- end finding -->\n", re.DOTALL)
_PARAGRAPH = re.compile(r"\*\*([^*]+)\*\*(?: \(scale `(\w+)`\))?: (.+)", re.DOTALL)
_SENTENCE_ENDS = re.compile(r"(?<!\b(?:Alg|App|Fig|Sec)\.)(?<!\b(?:Eq|al|vs)\.)(?<=\.) (?=[A-Z])")
_FOLD = re.compile(r"^(?:</?details>|<summary>.*</summary>)\n\n?", re.MULTILINE)
_TOP_PICTURE = re.compile(r"(<!-- end finding -->\n\n)(?:!\[[^\n]*\n\n)?")


@dataclass(frozen=True)
class Finding:
    """How a page opens.

    Attributes:
        sentences: by what they begin with, as Markdown with links as on the page.
        scale: of which published results it speaks; None if there are none.
    """

    sentences: dict[str, str]
    scale: str | None

    @property
    def headline(self) -> str:
        """The sentence that says most."""
        return self.sentences[FIND] if self.scale else f"{NOT_RUN}: {self.sentences[NOT_RUN]}"


def filled_in(target: str, scale: str, module: ModuleType, folder: Path) -> str:
    """The text of `<target>.md` with the block of `scale` rewritten.

    Args:
        folder: where the target's files are, drawn.

    Raises:
        ReproError: the page has no such block, or the files are damaged.
    """
    path = page_of(target)
    text = path.read_text() if path.exists() else ""
    pattern = re.compile(rf"(<!-- results {scale} -->\n).*?(<!-- end {scale} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ReproError(f"{path} has no block '<!-- results {scale} -->' ... '<!-- end {scale} -->' to fill in.")
    block = _results(target, scale, module, folder)
    text = pattern.sub(lambda match: match.group(1) + block + match.group(2), text)
    sweeps = json.loads((folder / "provenance.json").read_text())["sweeps"]
    return _with_top_picture(with_minutes(text, target, scale, sweeps), target, scale)


def with_minutes(text: str, target: str, scale: str, sweeps: Sequence[Mapping[str, Any]]) -> str:
    """The page's text with what its trainings took beside the command that makes it at this scale.

    Raises:
        ReproError: the page has no such command with a comment beside it.
    """
    command = f"make {target}" if scale == "laptop" else f"make {target} SCALE={scale}"
    line = re.compile(rf"^(    {command} +#[^\n]*?)(?:; trainings took [^\n]*)?$", re.MULTILINE)
    evaluating = evaluation_minutes(sweeps)
    beside = "without evaluations" if evaluating is None else f"evaluations {minutes_in_words(evaluating)}"
    clock = f", {by_clock}" if (by_clock := on_the_clock(sweeps)) else ""
    took = f"; trainings took {minutes_in_words(minutes(sweeps))} minutes{clock}, one after another, {beside}"
    found, lines = line.subn(lambda match: match.group(1) + took, text, count=1)
    if not lines:
        raise ReproError(f"{page_of(target)} has no line '    {command}  # ...' in its usage.")
    return found


def minutes(sweeps: Sequence[Mapping[str, Any]]) -> float:
    """What training all runs of a `provenance.json` took, one after another, each once."""
    runs: dict[Any, float] = {}
    for sweep in sweeps:
        runs |= dict(zip(names_of_runs(sweep), training_seconds(sweep), strict=True))
    return sum(runs.values()) / 60


def training_seconds(sweep: Mapping[str, Any]) -> list[float]:
    """What each run of a sweep took: of the processor's time, or by the clock where only that was recorded."""
    walls = sweep["wall_seconds"]
    recorded = sweep.get("cpu_seconds", [None] * len(walls))
    return [wall if cpu is None else cpu for cpu, wall in zip(recorded, walls, strict=True)]


def on_the_clock(sweeps: Sequence[Mapping[str, Any]]) -> str:
    """Whether `minutes` are by the clock, which other work on the machine makes longer: in words, empty if not."""
    known = [
        cpu is not None or wall < _SHORTEST
        for sweep in sweeps
        for cpu, wall in zip_longest(sweep.get("cpu_seconds", []), sweep["wall_seconds"])
    ]
    return "" if all(known) else "partly by the clock" if any(known) else "by the clock"


def evaluation_minutes(sweeps: Sequence[Mapping[str, Any]]) -> float | None:
    """What measuring them took, each once by the same evaluations; None if it was not recorded of all."""
    runs: dict[Any, float] = {}
    for sweep in sweeps:
        seconds = sweep.get("evaluation_seconds", [None])
        if None in seconds:
            return None
        measured = json.dumps(sweep["evaluation"], sort_keys=True)
        runs |= dict(zip([(name, measured) for name in names_of_runs(sweep)], seconds, strict=True))
    return sum(runs.values()) / 60


def names_of_runs(sweep: Mapping[str, Any]) -> list[Any]:
    """What tells a sweep's runs apart, and is the same where another sweep has the same run."""
    if "rerun" in sweep:
        return list(sweep["rerun"].split()[3:])
    # Earlier files name no runs: what took as long in two sweeps, to a tenth of a second, is taken for one run.
    seconds = sweep["wall_seconds"]
    return [(s, seconds[:i].count(s)) for i, s in enumerate(seconds)]


def minutes_in_words(taken: float) -> str:
    return f"{taken:,.0f}" if taken >= 1 else f"{taken:.1f}"


def page_of(target: str) -> Path:
    return PAGES / f"{target}.md"


def heading(target: str) -> str:
    """A page's title."""
    return page_of(target).read_text().partition("\n")[0].removeprefix("# ")


def section(target: str, beginning: str) -> str:
    """The Markdown of the section whose heading begins so, without heading and folds; empty if there is none."""
    found = re.search(
        rf"^## {beginning}[^\n]*\n(.*?)(?=^## |\Z)", page_of(target).read_text(), re.DOTALL | re.MULTILINE
    )
    return _FOLD.sub("", found.group(1)).strip() if found else ""


def finding(target: str) -> Finding:
    """What a page opens with.

    Raises:
        ReproError: it opens with anything else.
    """
    found = _FINDING.match(page_of(target).read_text())
    if not found:
        raise ReproError(f"{page_of(target)} has no '<!-- finding -->' ... '<!-- end finding -->' under its title.")
    paragraphs = [_PARAGRAPH.fullmatch(paragraph) for paragraph in found.group(1).split("\n\n")]
    sentences = {match.group(1): " ".join(match.group(3).split()) for match in paragraphs if match}
    scales = [match.group(2) for match in paragraphs if match and match.group(2)]
    right = list(sentences) in ([NOT_RUN], *([says, FIND, WHY] for says in SAYS))
    right &= not any(_SENTENCE_ENDS.search(sentence) for sentence in sentences.values())
    if not right or len(sentences) != len(paragraphs) or len(scales) != (FIND in sentences):
        raise ReproError(
            f"the finding of {page_of(target)} must be paragraphs of one sentence each, '**{SAYS[0]}**: ...', "
            f"'**{FIND}** (scale `laptop`): ...' and '**{WHY}**: ...', or '**{NOT_RUN}**: ...'."
        )
    return Finding(sentences, scales[0] if scales else None)


def _with_top_picture(text: str, target: str, scale: str) -> str:
    """The page's text with the picture of the most advanced published scale, or of this one, under its finding."""
    scales = [s for s in SCALES if s == scale or (PAGES / "results" / f"{target}-{s}").is_dir()]
    picture = f"![{heading(target)}](results/{target}-{scales[-1]}/{target}.png)\n\n"
    return _TOP_PICTURE.sub(lambda match: match.group(1) + picture, text, count=1)


def _results(target: str, scale: str, module: ModuleType, folder: Path) -> str:
    """The block's Markdown."""
    with told_as(
        lambda error: (
            f"{folder} holds no figure that can be read ({type(error).__name__}); make it again with "
            f"`make {target} SCALE={scale}`, which repeats no finished run."
        )
    ):
        data = frame.read(frame.data_file(folder))
        claims = read(folder / "claims.json")
        provenance = json.loads((folder / "provenance.json").read_text())
        sweeps = provenance["sweeps"]
    parts = [
        f"![{target} at scale {scale}](results/{target}-{scale}/{target}.png)",
        module.table(data),
        "### Claims",
        tally(claims),
        folded(f"{len(claims)} claims, one by one", markdown(claims)),
        "### Departures from scale `paper`",
        folded(
            "what departs, by sweep" if len(departures(sweeps)) > 1 else "what departs",
            "\n\n".join(_departures(sweeps)),
            always=any(keys for _, keys in departures(sweeps)),
        ),
        "### Made with",
        folded(
            f"{len(sweeps)} sweep{'s' if len(sweeps) > 1 else ''}",
            "\n\n".join([_made_with(sweeps), *map(_beside, provenance.get("beside", []))]),
            always=True,
        ),
    ]
    return "\n" + "\n\n".join(parts) + "\n\n"


def folded(summary: str, text: str, always: bool = False) -> str:
    """Markdown that a reader opens if it is long, or always."""
    if not always and len(text.splitlines()) <= _MOST_LINES:
        return text
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


EVERY_SWEEP = "every sweep"
_NAMED_NOW = {"algorithm.evaluate_every": "algorithm.snapshot_every", "algorithm.match_hands": "evaluation.match.hands"}
"""Keys of old results that are called otherwise today."""


def departures(sweeps: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, Sequence[Any]]]]:
    """What departs from scale `paper` in the sweeps of a `provenance.json`: key -> what it is there, and here.

    What all of several sweeps depart in comes first, under `EVERY_SWEEP`; then what only some do, under their names.
    """
    of_sweeps = {}
    for sweep in sweeps:
        # A sweep whose seeds were not all run together is in the file once for each time.
        alike = name_of(sweep), json.dumps(sweep["deviations_from_paper"])
        of_sweeps[alike] = name_of(sweep), dict(sweep["deviations_from_paper"])
    every = list(of_sweeps.values())
    if len(every) < 2:
        return every
    shared = {key: values for key, values in every[0][1].items() if all(of.get(key) == values for _, of in every)}
    names: dict[str, list[str]] = {}
    for name, of_sweep in every:
        own = {key: values for key, values in of_sweep.items() if key not in shared}
        names.setdefault(json.dumps(own), []).append(name)
    told = [(", ".join(dict.fromkeys(alike)), json.loads(own)) for own, alike in names.items()]
    return [(EVERY_SWEEP, shared)] * bool(shared) + [(name, own) for name, own in told if own or not shared]


def _departures(sweeps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table, or one of what all sweeps depart in and one for each that departs in more."""
    every = departures(sweeps)
    shared = every[0][0] == EVERY_SWEEP
    for name, keys in every:
        if name == EVERY_SWEEP:
            yield f"{name}, and those that are not named below in nothing else:"
        elif len(every) > 1:
            yield f"`{name}`{', also' if shared else ''}:"
        yield _deviations(keys)


def name_of(sweep: Mapping[str, Any]) -> str:
    """What a sweep of a `provenance.json` is called."""
    return str(sweep.get("sweep") or sweep.get("experiment") or sweep["config"]["algorithm"]["name"])


def _deviations(deviations: Mapping[str, Sequence[Any]]) -> str:
    if not deviations:
        return "None: everything is as at scale `paper`."
    lines = ["| key | paper | here | ratio |", "|---|---|---|---|"]
    for key, (paper, ours) in deviations.items():
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (paper, ours))
        ratio = f"{ours / paper:.3g}" if numbers and paper else "–"
        lines.append(f"| `{_NAMED_NOW.get(key, key)}` | {paper} | {ours} | {ratio} |")
    return "\n".join(lines)


def _made_with(sweeps: Sequence[Mapping[str, Any]]) -> str:
    """How each sweep's runs were made; what is the same for all of several, such as the machine, is told once."""
    hardware, now = [_hardware(sweep) for sweep in sweeps], [staleness.line(sweep) for sweep in sweeps]
    one_machine, one_state = len(set(hardware)) == 1, len(sweeps) > 1 and len(set(now)) == 1
    paragraphs = [
        _runs(sweep) + ("." if one_machine else f"; on {on}.") + ("" if one_state else f"\n{state}")
        for sweep, on, state in zip(sweeps, hardware, now, strict=True)
    ]
    machine = f"{'All on' if len(sweeps) > 1 else 'On'} {hardware[0]}. " if one_machine else ""
    paragraphs.append(f"{machine}Everything else: `provenance.json` beside the picture.")
    return "\n\n".join([*paragraphs, *now[:1] * one_state])


def _beside(part: Mapping[str, Any]) -> str:
    """What is drawn from another target's published data."""
    made = ", ".join(commit[:_DIGITS] for commit in part["git_commit"])
    return (
        f"Beside them, data published as `{part['results']}`, made with {made}; SHA-256 of `data.csv.gz` "
        f"{part['data_sha256'][:_DIGITS]}."
    )


def commits(sweep: Mapping[str, Any]) -> str:
    """The commits that made a sweep's runs; where they are several, and it was recorded, how many runs each made.

    A run that was continued with other code names all its commits.
    """
    told = ", ".join(sorted({commit[:_DIGITS] for named in sweep["git_commit"] for commit in named.split(", ")}))
    made = [" and then ".join(commit[:_DIGITS] for commit in each) for each in sweep.get("commits", [])]
    if len(set(made)) > 1:
        runs = Counter(each or "unknown" for each in made)
        told = ", ".join(f"{each} ({number} run{'s' if number > 1 else ''})" for each, number in runs.items())
    return told + ("; with uncommitted changes" if "true" in sweep["git_dirty"] else "")


def _runs(p: Mapping[str, Any]) -> str:
    """The command of a sweep, its commits, seeds and times."""
    wall, cpu, evaluating = p["wall_seconds"], p.get("cpu_seconds", [None]), evaluation_minutes([p])
    by_clock = on_the_clock([p])
    of_processor = f" {by_clock}" if by_clock else f" ({_time(sum(c or 0 for c in cpu))} of the processor's)"
    measured = "" if evaluating is None else f", and {_time(60 * evaluating)} of evaluations"
    # Keys are renamed, so a command is one of its commit.
    now = f" (now `{p['command_now']}`)" if "command_now" in p else ""
    return (
        f"`{p['command']}`{now} at commit {commits(p)}; seeds {', '.join(map(str, p['seeds']))}; "
        f"{_time(min(wall))} to {_time(max(wall))} per run, {_time(sum(wall))} in all{of_processor}{measured}"
    )


def _hardware(p: Mapping[str, Any]) -> str:
    """On what a sweep ran."""

    def text(key: str) -> str:
        return ", ".join(map(str, p[key]))

    versions = ", ".join(f"{k} {text(k)}" for k in ("python", "torch", "pytorch-lightning", "hydra-core", "mlflow"))
    return f"{text('cpu')} with {text('cores')} cores, {p['config'].get('threads', 1)} thread(s) per run; {versions}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
