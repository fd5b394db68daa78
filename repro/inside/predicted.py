"""What a network predicts for a subgame that somebody names, beside what the solver finds."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.table import Table

from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.config.checks import game_for_checks
from repro.games.card_names import card_names, read_cards
from repro.stored.trained import Trained
from repro.subgames.dataset import SubgameSamples
from repro.subgames.encoding import error, squared_error
from repro.subgames.networks import PredictedValues
from repro.subgames.solver import solve_subgame
from repro.subgames.subgames import Deck, Subgame, Subgames
from repro.tracking.progress import console

_MOST_SHOWN = 10
"""Hands whose values are printed."""
_COLUMNS = ("range_0", "range_1")


@dataclass(frozen=True)
class Prediction:
    """What a network predicts for one subgame, and what is so.

    Attributes:
        subgame: with ranges that sum to 1.
        predicted, solved: `[2, hands]` counterfactual values, as fractions of the pot.
        exploitability: of the solution, as a fraction of the pot.
        seconds: that predicting and solving took.
    """

    subgame: Subgame
    predicted: Array
    solved: Array
    exploitability: float
    seconds: tuple[float, float]

    @property
    def errors(self) -> Array:
        """`[2]` root mean square errors over each player's hands, in % of the pot."""
        squares = squared_error(torch.from_numpy(self.solved)[None], torch.from_numpy(self.predicted)[None])
        rms: Array = 100 * squares[0].sqrt().numpy()
        return rms

    def table(self) -> pd.DataFrame:
        """A row per hand; values and errors are in % of the pot."""
        names, deck = names_of(self.subgame.deck), self.subgame.deck
        hands = deck.hands(self.subgame.board)
        columns: dict[str, object] = {"hand": [names[high] + names[low] for low, high in hands.tolist()]}
        columns |= {f"range_{p}": self.subgame.ranges[p] for p in range(2)}
        for label, values in (
            ("predicted", self.predicted), ("solved", self.solved), ("error", self.predicted - self.solved),
        ):  # fmt: skip
            columns |= {f"{label}_{p}": 100 * values[p] for p in range(2)}
        return pd.DataFrame(columns)


def names_of(deck: Deck) -> list[str]:
    """Of the deck's cards."""
    return card_names(deck.ranks, deck.suits)


# -- what is asked ---------------------------------------------------------------------------------------------------


def read_subgame(subgames: Subgames, board: str, chips: float, ranges: str) -> Subgame:
    """The subgame that a command line names.

    Raises:
        ReproError: it is none of this kind.
    """
    deck, names = subgames.deck, names_of(subgames.deck)
    cards = tuple(read_cards("--board", board, names, subgames.board_cards))
    if not subgames.least_pot <= chips <= 2 * Subgame.stack:
        raise ReproError(
            f"--pot is {chips:g}; the network learned pots of {subgames.least_pot:g} to {2 * Subgame.stack:g} chips."
        )
    count = len(deck.hands(cards))
    weights = np.ones((2, count)) if ranges == "uniform" else _read_ranges(Path(ranges), deck, cards)
    if not (weights.sum(1) > 0).all():
        raise ReproError(f"--ranges is {ranges!r}; each player needs a hand that this board leaves.")
    asked = Subgame(cards, chips, weights / weights.sum(1, keepdims=True), deck)
    if not (asked.matchups() * asked.ranges).any():
        raise ReproError(f"--ranges is {ranges!r}; no two of these hands can meet, for each pair shares a card.")
    return asked


def _read_ranges(path: Path, deck: Deck, board: tuple[int, ...]) -> Array:
    """`[2, hands]` weights from a CSV file.

    Raises:
        ReproError: it is no such file, or holds a hand that cannot be.
    """
    if not path.is_file():
        raise ReproError(f"--ranges is {str(path)!r}; it must be uniform, or a CSV file with hand, range_0, range_1.")
    try:
        data = pd.read_csv(path, usecols=["hand", *_COLUMNS], dtype={"hand": str})
        given = data[list(_COLUMNS)].to_numpy(dtype=float)
    except Exception as error:  # A file of another kind fails in as many ways as there are bytes.
        raise ReproError(f"{path} cannot be read as a CSV file with hand, range_0 and range_1.") from error
    if not (np.isfinite(given) & (given >= 0)).all():
        raise ReproError(f"{path} has weights that are not finite numbers of 0 or more.")
    number = {tuple(hand): i for i, hand in enumerate(deck.hands(board).tolist())}
    weights, listed = np.zeros((2, len(number))), set[int]()
    for name, row in zip(data.hand, given, strict=True):
        hand = tuple(sorted(read_cards(f"{path}: hand", str(name), names_of(deck), 2)))
        if hand not in number or number[hand] in listed:
            why = "is listed twice" if hand in number else "has a card of the board"
            raise ReproError(f"{path}: hand {name} {why}.")
        listed.add(number[hand])
        weights[:, number[hand]] = row
    return weights


# -- the answer ------------------------------------------------------------------------------------------------------


def open_readout(output: str, key: str, readout: str) -> tuple[Trained, str, PredictedValues]:
    """A finished run whose read-outs predict values, and one of these; the first where none is named.

    Raises:
        ReproError: there is none.
    """
    trained = Trained.open(output, key)
    trained.check_finished()
    readouts = trained.config.algorithm.readouts
    name = readout or next(iter(readouts), "")
    if name not in readouts:
        hint = did_you_mean(name, readouts)
        raise ReproError(f"--readout is {name!r}; {trained.config.algorithm.name} has {', '.join(readouts)}{hint}.")
    found = trained.read_out(game_for_checks(trained.config), name).readout
    if not isinstance(found, PredictedValues):
        raise ReproError(
            f"KEY is {key}, a run of {trained.config.algorithm.name}, which predicts no values of subgames; "
            "runs of algorithm=dcvn and algorithm=devn do."
        )
    return trained, name, found


def predict(trained: Trained, readout: PredictedValues, subgame: Subgame, tolerance: float) -> Prediction:
    """Predict, and solve to a tolerance, a fraction of the pot."""
    data = readout.data()
    began = time.perf_counter()
    solution = solve_subgame(subgame, trained.config.algorithm.solver, tolerance)
    solved = time.perf_counter() - began
    samples = SubgameSamples(
        np.array([subgame.board], np.int8), np.array([subgame.pot]), subgame.ranges[None].astype(np.float32),
        solution.cfv[None].astype(np.float32), np.array([solution.exploitability]), np.array([solution.iterations]),
    )  # fmt: skip
    network = readout.network(trained.snapshots.read(), data)
    batch, truth = data.encoded(samples)
    began = time.perf_counter()
    with torch.no_grad():
        predicted = readout.predicted(network, batch.inputs, truth)[0].double().numpy()
    seconds = time.perf_counter() - began, solved
    return Prediction(subgame, predicted, solution.cfv, solution.exploitability, seconds)


def tell(name: str, prediction: Prediction) -> None:
    """Print errors, and the hands that count most."""
    subgame, names = prediction.subgame, names_of(prediction.subgame.deck)
    board = " ".join(names[card] for card in subgame.board)
    print(f"{name}: board {board}, {subgame.pot:g} chips in the pot; values are in % of it")
    fast, slow = prediction.seconds
    print(f"predicted in {1000 * fast:.1f} ms; solved in {slow:.1f} s, exploitable by {prediction.exploitability:.3%}")
    mean = error(torch.from_numpy((prediction.errors[None] / 100) ** 2))
    zero = 100 * np.sqrt((prediction.solved**2).mean(1)).mean()
    each = " and ".join(f"{e:.3f}" for e in prediction.errors)
    print(f"error (root mean square over hands): {each} of players 0 and 1, mean {mean:.3f}; predicting 0: {zero:.3f}")
    data = prediction.table()
    weight = data.range_0 + data.range_1
    table = Table(*data.columns, box=None)
    for row in data.loc[weight.nlargest(_MOST_SHOWN).index].itertuples(index=False):
        shares = [f"{value:.5f}" for value in row[1:3]]
        table.add_row(str(row[0]), *shares, *(f"{value:+.3f}" for value in row[3:]))
    console(sys.stdout).print(table)
