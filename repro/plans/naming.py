"""What runs are called: titles from a command line, names and parameters in MLflow, labels of a command's table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from repro.config.checks import TRAINING
from repro.config.keys import hyperparameters
from repro.config.schema import Config
from repro.plans.planned import Run

_LONGEST_NAME = 250
"""Of a run in MLflow: what databases have room for."""

_SHOWN_OF_GROUPS = 6
"""Characters of a group's name that the UI's list of runs shows at the least."""

WHO = "<who>"
"""In a run's title, the place of its seed and read-out."""

_NAMED = ("algorithm", "network", "game", "trainer", "device", "threads")
"""Parts of a configuration that a title names."""

_NOT_NAMED = ("game", "algorithm.readouts.", "algorithm.opponents.")
_CHOICES = ("experiment", "algorithm")
"""What a title begins with only where nothing else tells runs apart, and names leave out otherwise."""


def title_of(job: Sequence[str]) -> str:
    """The title of a job of a command, from its overrides, as long as it is not known what tells it from others."""
    said = dict(filter(None, map(_said, job)))
    return " ".join([WHO, *(f"{key}={value}" for key, value in said.items())])


def titled_together(runs: Sequence[Run]) -> list[Run]:
    """The runs of one command or of several, with titles that begin with what tells each from the others.

    Others are those of the same game that have a read-out, or the algorithm, of the same name: the rest, `WHO` tells.
    """
    said = [[word for word in run.title.split() if word != WHO] for run in runs]
    curves = [_curves(run) for run in runs]
    titles_of: dict[tuple[str, str], set[frozenset[str]]] = {}
    for own, named in zip(said, curves, strict=True):
        for curve in named:
            titles_of.setdefault(curve, set()).add(frozenset(own))
    others = {named: _Others(set.union(*(titles_of[curve] for curve in named))) for named in set(curves)}
    retitled: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
    for run, own, named in zip(runs, said, curves, strict=True):
        if (run.title, named) not in retitled:
            first = others[named].telling_words(own)
            last = [word for word in own if word not in first]
            retitled[run.title, named] = " ".join([*first, WHO, *last])
    return [replace(run, title=retitled[run.title, named]) for run, named in zip(runs, curves, strict=True)]


def _curves(run: Run) -> frozenset[tuple[str, str]]:
    """What a run's curves are named after beside its words, with its game: its read-outs and its algorithm."""
    readouts = {name for config in run.configs for name in config.algorithm.readouts}
    return frozenset((run.config.game["name"], name) for name in {*readouts, f"{TRAINING} {run.config.algorithm.name}"})


class _Others:
    """Titles of runs, each the set of its words, to be told apart. Of thousands, those with a word are looked up."""

    def __init__(self, titles: Iterable[frozenset[str]]) -> None:
        self._alike: defaultdict[frozenset[str], list[frozenset[str]]] = defaultdict(list)
        for title in titles:
            self._alike[_without_choices(title)].append(title)
        self._having = _by_word(title for alike in self._alike.values() for title in alike)
        self._count = sum(map(len, self._alike.values()))

    def telling_words(self, said: Sequence[str]) -> list[str]:
        """The few of a run's words that no other has together; experiment and algorithm where nothing else does."""
        alike = self._alike[_without_choices(said)]
        choices = [word for word in said if _is_choice(word)]
        others = [word for word in said if word not in choices]
        telling = {*_few(others, self._having, self._count), *_few(choices, _by_word(alike), len(alike))}
        return [word for word in said if word in telling]


def _without_choices(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in words if not _is_choice(word))


def _by_word(titles: Iterable[frozenset[str]]) -> dict[str, set[frozenset[str]]]:
    having: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for title in titles:
        for word in title:
            having[word].add(title)
    return having


def _few(said: Sequence[str], having: Mapping[str, set[frozenset[str]]], count: int) -> list[str]:
    """Words that none of the others has together, each the one that fewest have; an other that has all is passed over.

    That one has more words, by which its own name tells it.

    Args:
        having: titles by each of their words, the own one among them.
        count: of all titles.
    """
    if not said:
        return []
    rarest_first = sorted(said, key=lambda word: len(having[word]))
    passed_over = set.intersection(*(having[word] for word in rarest_first))
    if len(passed_over) == count:
        return []
    few = rarest_first[:1]
    left = having[few[0]] - passed_over
    while left:
        few.append(min(said, key=lambda word: len(having[word] & left)))
        left &= having[few[-1]]
    return few


def _is_choice(word: str) -> bool:
    return word.partition("=")[0] in _CHOICES


def curve_name(title: str, config: Config, readout: str) -> str:
    """What runs of all seeds are called that a command asked for: `800 d2cfr simulations=800`.

    Args:
        title: of the run, or empty.
        readout: or `TRAINING`.
    """
    return _named(title, config, readout, "")


def run_name(title: str, config: Config, readout: str) -> str:
    """What a run in MLflow is called: `800 d2cfr s2 simulations=800`, or `800 training d2cfr s2 ...`."""
    return _named(title, config, readout, f"s{config.seed}")


def mean_name(title: str, config: Config, readout: str) -> str:
    """What the mean of runs of all seeds is called: `800 d2cfr mean simulations=800`."""
    return _named(title, config, readout, "mean")


def _named(title: str, config: Config, readout: str, which: str) -> str:
    who = f"{TRAINING} {config.algorithm.name}" if readout == TRAINING else readout
    first, _, last = (title or WHO).partition(WHO)
    return name_of(first.split(), who, which, last.split())


def name_of(telling: Sequence[str], who: str, which: str, others: Sequence[str] = ()) -> str:
    """`800 d2cfr s2 simulations=800`: values first, because lists of runs and legends cut all but a name's beginning.

    Args:
        telling: words `key=value` that tell it from others.
        who: a read-out, or a training; a read-out that ends with a number begins with it, as `1000_sd_cfr`, and one
            that is played greedily with that, where no more than the beginning of its name would be shown.
        which: of several such, or empty.
        others: more words.
    """
    # An algorithm that is called like its read-out is not said twice.
    values = [_value(word) for word in telling if word != f"algorithm={who.removeprefix(f'{TRAINING} ')}"]
    words = [word for word in (*telling, *others) if not _is_choice(word)]
    return " ".join(filter(None, [*values, _beginning(who), which, *words]))[:_LONGEST_NAME]


def _beginning(who: str) -> str:
    found = re.fullmatch(r"(\w+)_(\d+|greedy)", who)
    if found is None or (found[2] == "greedy" and len(found[1]) < _SHOWN_OF_GROUPS):
        return who
    return f"{found[2]}_{found[1]}"


def _value(word: str) -> str:
    """The value of `key=value`; of yes and no the key says more."""
    key, _, value = word.partition("=")
    key = key.rpartition(".")[2]
    return {"true": key, "false": f"no {key}", "null": f"no {key}"}.get(value.lower(), value)


def _said(override: str) -> tuple[str, str] | None:
    """Key, as a title has it, and value of an override that is about what is trained; None for others."""
    key, _, value = override.lstrip("+~").partition("=")
    if key.split(".")[0] not in (*_NAMED, *_CHOICES) or key in _NOT_NAMED or key.startswith(_NOT_NAMED[1:]):
        return None
    # A title is words.
    return key.removeprefix("algorithm."), "".join(value.split())


def labels(runs: Sequence[Run]) -> list[str]:
    """A name per run: game, as the command changed it, algorithm, seed, and what tells it from the others of these."""
    flat = [{**written(hyperparameters(r.config)), "seed": ",".join(str(c.seed) for c in r.configs)} for r in runs]
    alike: dict[str, list[dict[str, Any]]] = {}
    for f in flat:
        alike.setdefault(_player(f), []).append(f)
    telling = {player: _telling(own) for player, own in alike.items()}
    named = []
    for run, f in zip(runs, flat, strict=True):
        own = telling[_player(f)]
        said = {word.partition("=")[0] for word in run.title.split()}
        changed = [key for key in f if key in said and key.startswith("game.") and key not in own]
        words = [f"{key.removeprefix('algorithm.')}={f[key]}" for key in (*changed, *own)]
        named.append(" ".join([f"{_player(f)} seed={f['seed']}", *words]))
    return named


def written(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters, with null, true and false as on a command line."""
    named = {"None": "null", "True": "true", "False": "false"}
    return {key: named.get(str(value), value) for key, value in flat.items()}


def _player(flat: Mapping[str, Any]) -> str:
    return f"{flat['game.name']} {flat['algorithm.name']}"


def _telling(flat: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys whose values together tell apart runs that differ in more than their seeds; as few as are easily found.

    Runs that differ in keys alone that not all of them have are not told apart.
    Each key that is taken tells most of those apart that were alike before; of several such keys the first one.
    """
    keys = sorted(set.intersection(*map(set, flat)) - {"seed"})
    values = {key: [str(f[key]) for f in flat] for key in keys}
    taken, told = list[str](), [""] * len(flat)

    def with_key(key: str) -> list[str]:
        return [f"{before} {value}" for before, value in zip(told, values[key], strict=True)]

    while keys:
        best = max(keys, key=lambda key: len(set(with_key(key))))
        if len(set(with_key(best))) == len(set(told)):
            break
        taken.append(best)
        told = with_key(best)
    return sorted(taken)


def params_of(config: Config, readout: str) -> dict[str, Any]:
    """The parameters of a run in MLflow: what was trained, and how it is played.

    Args:
        readout: or `TRAINING`.
    """
    algorithm = config.algorithm.name
    flat = {k: v for k, v in hyperparameters(config).items() if k not in ("game.name", "algorithm.name")}
    return {
        # Of read-outs, `algorithm` is what curves are compared by: one training has several.
        "algorithm": algorithm if readout == TRAINING else readout, "training": algorithm, "readout": readout,
        "game": config.game["name"], "seed": config.seed, **flat,
    }  # fmt: skip


def readout_names(config: Config) -> list[str]:
    """Whatever metrics are measured of: the read-outs, and what evaluations call so."""
    named = [n for e in config.evaluation.values() for n in e.names(config.algorithm.readouts)]
    return list(dict.fromkeys([*config.algorithm.readouts, *named]))
