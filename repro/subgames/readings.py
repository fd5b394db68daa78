"""What "encoding error" may mean: the error that buckets alone make, measured in every way that came to mind.

The paper's text says that values are averaged over a bucket's hands, that each hand gets its bucket's value back, and
that the error "is calculated on the validation dataset using RMSE" [DEVN, Sec. 6]; `TEXT` is how this suite reads it.
The other readings differ from it in how hands or subgames are weighed, in what is compared, or in what the authors'
public code does [jwolosiuk/dont-predict-cfvs-predict-evs-instead], which measures losses of networks and no encoding
error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb, inf

import torch
from torch import Tensor

from repro.config.schema import AlgorithmConfig, register_evaluation
from repro.evaluation.base import Evaluation, Measured, Subject
from repro.games.game import Game
from repro.subgames.config import folder_of
from repro.subgames.dataset import Dataset
from repro.subgames.encoding import CFV, EV, counterfactual, error, expected, inverse, pooled, summed
from repro.subgames.runs import EncodingErrorConfig, MeasuredErrors
from repro.subgames.subgames import matchups

PREDICTED = "predicted"
"""What a network predicts is what is compared: counterfactual values of DCVN, expected ones of DEVN."""


@dataclass(frozen=True)
class Sample:
    """Solved subgames and their buckets, `n` at a time.

    Attributes:
        cfv, ranges: `[n, 2, hands]` values in pots, and probabilities.
        matchup, own_matchup: `[n, 2, hands]` float64 probability of meeting a hand of the opponent's range, and of the
            player's own.
        bucket: `[n, hands]` int64.
        buckets: how many.
        blocked: hands of the deck that a board takes cards of.
        pot: `[n]` chips.
    """

    cfv: Tensor
    ranges: Tensor
    matchup: Tensor
    own_matchup: Tensor
    bucket: Tensor
    buckets: int
    blocked: int
    pot: Tensor


Weights = Callable[[Sample], Tensor]
Average = Callable[[Tensor, Tensor], float]
"""Of `[n, 2]` mean squared errors in pots squared and `[n]` pots in chips, the error in % of the pot."""


def equal(sample: Sample) -> Tensor:
    """Every hand that the board leaves counts the same."""
    return torch.ones_like(sample.matchup)


def by_range(sample: Sample) -> Tensor:
    """A hand counts as it is probable."""
    return sample.ranges.double()


def by_matchup(sample: Sample) -> Tensor:
    """A hand counts as it is probable that it meets one of the opponent's."""
    return sample.matchup


def in_half_precision(sample: Sample) -> Tensor:
    """Hands are left out whose probability is 0 in 16 bits."""
    return (sample.ranges.half() > 0).double()


def not_rare(sample: Sample) -> Tensor:
    """Hands are left out that a player has less often than once in 10,000."""
    return (sample.ranges >= 1e-4).double()


def by_subgame(squares: Tensor, pot: Tensor) -> float:
    """A root for each subgame and player."""
    del pot
    return error(squares)


def players_together(squares: Tensor, pot: Tensor) -> float:
    """A root for each subgame, over both players' hands."""
    del pot
    return error(squares.mean(1, keepdim=True))


def all_together(squares: Tensor, pot: Tensor) -> float:
    """One root."""
    del pot
    return pooled(squares)


def median(squares: Tensor, pot: Tensor) -> float:
    """A root for each subgame and player, and of these the median."""
    del pot
    return 100 * float(squares.sqrt().median())


def in_chips(squares: Tensor, pot: Tensor) -> float:
    """A root for each subgame and player in chips, in % of the mean pot."""
    return 100 * float((squares.sqrt() * pot[:, None]).mean() / pot.mean())


@dataclass(frozen=True)
class Reading:
    """A way to read the definition; the default is that of `repro.subgames.encoding.encoding_error`.

    Attributes:
        means: what hands weigh in a bucket's mean.
        errors: what they weigh in the mean of squared errors.
        average: over subgames and players.
        compared: `CFV` or `EV`, or `PREDICTED`.
        own_matchup: whether a player's counterfactual values come from her own range instead of the opponent's.
        dilute: the bucket, by its index, in which the hands that a board takes cards of count as zeros; None for none.
            Buckets are sorted by their centres' mean: on rivers from weak hands to strong, on turns, whose centres are
            distribution functions of strength, from strong to weak.
        pots: of which subgames, chips in the pot: at least the first, less than the second.
    """

    means: Weights = equal
    errors: Weights = equal
    average: Average = by_subgame
    compared: str = CFV
    own_matchup: bool = False
    dilute: int | None = None
    pots: tuple[float, float] = (0.0, inf)

    def squares(self, sample: Sample, target: str) -> Tensor:
        """`[n, 2]` mean squared errors in pots squared of bucketing a `target` and undoing it."""
        matchup, cfv = sample.matchup, sample.cfv.double()
        if self.own_matchup:
            ev = expected(cfv, matchup)
            matchup = sample.own_matchup
            cfv = ev * matchup
        values = expected(cfv, matchup) if target == EV else cfv
        predicted = inverse(self._means(values, sample), sample.bucket)
        compared = target if self.compared == PREDICTED else self.compared
        if compared == EV:
            wrong = expected(cfv, matchup) - (predicted if target == EV else expected(predicted, matchup))
        else:
            wrong = cfv - counterfactual(predicted, matchup, target)
        weight = self.errors(sample)
        return (wrong.square() * weight).sum(2) / weight.sum(2)

    def _means(self, values: Tensor, sample: Sample) -> Tensor:
        """`[n, 2, buckets]`; 0 for a bucket whose hands weigh nothing."""
        weight = self.means(sample)
        total = summed(weight, sample.bucket, sample.buckets)
        if self.dilute is not None:
            total[:, :, self.dilute] += sample.blocked
        mean = summed(values * weight, sample.bucket, sample.buckets) / torch.where(total > 0, total, 1.0)
        return torch.where(total > 0, mean, 0.0)

    def of(self, pot: Tensor) -> Tensor:
        """`[n]` whether this is about subgames with such pots."""
        low, high = self.pots
        return (pot >= low) & (pot < high)

    def error(self, squares: Tensor, pot: Tensor) -> float:
        """In % of the pot, from those of all subgames."""
        return self.average(squares[self.of(pot)], pot[self.of(pot)])


TEXT = "text"
READINGS = {
    TEXT: Reading(),
    "players_together": Reading(average=players_together),
    "all_together": Reading(average=all_together),
    "median": Reading(average=median),
    "in_chips": Reading(average=in_chips),
    "pots_to_4000": Reading(pots=(0, 4000)),
    "pots_to_12000": Reading(pots=(4000, 12000)),
    "pots_above": Reading(pots=(12000, inf)),
    "errors_by_range": Reading(errors=by_range),
    "errors_by_matchup": Reading(errors=by_matchup),
    "means_by_range": Reading(means=by_range),
    "means_by_matchup": Reading(means=by_matchup),
    "both_by_range": Reading(means=by_range, errors=by_range),
    "both_by_matchup": Reading(means=by_matchup, errors=by_matchup),
    "half_precision": Reading(errors=in_half_precision),
    "not_rare": Reading(means=not_rare, errors=not_rare),
    "diluted": Reading(dilute=0),
    "diluted_last": Reading(dilute=-1),
    "own_matchups": Reading(own_matchup=True),
    "expected_values": Reading(compared=EV),
    "predicted_values": Reading(compared=PREDICTED),
}
"""By the names of their metrics. Where the pot is 2,000 chips or more, the three of pots are DeepStack's intervals."""


@dataclass
class EncodingReadings(Evaluation):
    """The encoding error of all subgames of a run, in % of the pot, in each way to read its definition (`READINGS`)."""

    OF_PLAYERS = False

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if not isinstance(algorithm, EncodingErrorConfig):
            yield "readouts", self.readouts, f"the algorithm {algorithm.name} measures no buckets, leave it out"

    def measure(self, subject: Subject) -> Measured:
        return {name: self._of_readout(subject, name) for name in self.each(subject)}

    def _of_readout(self, subject: Subject, name: str) -> dict[str, float]:
        readout = subject.readouts[name]
        assert isinstance(readout, MeasuredErrors)
        squares: dict[str, list[Tensor]] = {reading: [] for reading in READINGS}
        pots = []
        for sample in samples(readout, subject.snapshot.iteration):
            pots.append(sample.pot)
            for key, reading in READINGS.items():
                squares[key].append(reading.squares(sample, readout.readout.kind))
        pot = torch.cat(pots)
        # Of few subgames none may have such a pot.
        some = {key: reading for key, reading in READINGS.items() if reading.of(pot).any()}
        return {f"reading/{key}": reading.error(torch.cat(squares[key]), pot) for key, reading in some.items()}


register_evaluation("encoding_readings", EncodingReadings)


def samples(readout: MeasuredErrors, shards: int) -> Iterator[Sample]:
    """The first so many shards of a run, with its buckets."""
    config, game = readout.config, readout.game
    algorithm, deck = config.algorithm, game.deck
    dataset = Dataset(folder_of(config), algorithm.recipe(game, config.seed))
    for number in range(algorithm.first, algorithm.first + shards):
        solved = dataset.shard(number, config.threads)
        bucket = torch.from_numpy(algorithm.buckets_of(game, config, solved.board)).long()
        own = matchups(deck, solved.board, solved.ranges[:, ::-1])
        hands = bucket.shape[1]
        yield Sample(
            torch.from_numpy(solved.cfv), torch.from_numpy(solved.ranges), torch.from_numpy(solved.matchups(deck)),
            torch.from_numpy(own), bucket, int(bucket.max()) + 1, comb(deck.cards, 2) - hands,
            torch.from_numpy(solved.pot),
        )  # fmt: skip
