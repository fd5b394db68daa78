"""Stored subgames as what networks learn from and are measured on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.common.seeding import generator, numpy_generator
from repro.config.fields import above_up_to, added, at_least, between, multiplies, one_of, sorts
from repro.config.memory import network_bytes
from repro.config.schema import Config
from repro.games.isomorphism import Coding
from repro.subgames import buckets
from repro.subgames.buckets import BucketRecipe, HandBuckets
from repro.subgames.config import StoredSubgamesConfig, folder_of
from repro.subgames.dataset import Dataset as Store
from repro.subgames.dataset import SubgameSamples
from repro.subgames.encoded import Batch, Truth, parts_of
from repro.subgames.encoding import CFV, averaged, encoding_error, error, expected, sizes, squared_error, summed
from repro.subgames.fresh import Pool, numbers_of
from repro.subgames.rows import Rows
from repro.subgames.subgames import STACK, Subgames


@dataclass
class SubgameDataConfig(StoredSubgamesConfig):
    """Which stored subgames networks learn from and are measured on, and how these are encoded."""

    # Which dataset, and buckets of the same number, 0 or more; and how many of its subgames.
    dataset: int = at_least(0, 0)
    subgames: int = multiplies(at_least(2))
    # Share that is for validation: of the canonical boards, all of whose subgames go together, or of the subgames one
    # by one, so that networks have met boards that they are judged on.
    validation: float = above_up_to(0, 0.9, 0.1)
    split: str = added(one_of("boards", "subgames", default="boards"))
    # The pot is an input as a share of so many stacks: of both, or of one, as in the paper's text.
    pot_of_stacks: int = added(between(1, 2, 2))
    # Learn from only so many of those that are not for validation, drawn by the seed; null: from all.
    learn_from: int | None = at_least(1, None)
    # Learn from fresh subgames, so many in an iteration, which are drawn by the seed and solved then; of stored ones,
    # which are solved first where they are not yet, only those for validation are used. null: learn from stored ones.
    fresh: int | None = added(sorts(at_least(1, None)))
    # An iteration goes once over so many of them, the newest, of which the first one has all; null: over its own alone.
    pool: int | None = added(at_least(1, None))
    # How many buckets hands are in; null: no buckets, and the board is part of the input.
    buckets: int | None = at_least(1, None)
    # Samples per SGD step.
    batch_size: int = at_least(1)

    def stored_data(self, config: Config) -> Path:
        return folder_of(config) / self.recipe(self.load(config.game), self.dataset).name

    def check_stored_data(self, config: Config) -> None:
        if self.fresh is None:  # Otherwise those for validation are made, too.
            Store(folder_of(config), self.recipe(self.load(config.game), self.dataset)).check(self.subgames)

    def problems(self, config: Config, game: Subgames) -> Iterator[str]:
        yield from super().problems(config, game)
        if self.learn_from is not None and self.learn_from > self.subgames:
            yield (
                f"algorithm.learn_from is {self.learn_from}; it must be at most algorithm.subgames, {self.subgames}, "
                "less those for validation."
            )
        yield from self._fresh_problems()
        learned_from = {"pool": self.pool, "fresh": self.fresh, "learn_from": self.learn_from}
        key, most = next(((k, n) for k, n in learned_from.items() if n is not None), ("subgames", self.subgames))
        if self.batch_size > most:
            yield (
                f"algorithm.batch_size is {self.batch_size}, but algorithm.{key} only {most}; take smaller batches or "
                "more subgames."
            )

    def _fresh_problems(self) -> Iterator[str]:
        if self.fresh is None:
            if self.pool is not None:
                yield f"algorithm.pool is {self.pool} and algorithm.fresh null; only fresh subgames are in a pool."
            return
        if self.learn_from is not None:
            yield (
                f"algorithm.learn_from is {self.learn_from} and algorithm.fresh {self.fresh}; learn from stored "
                "subgames or from fresh ones, one of the two must be null."
            )
        if self.pool is not None and self.pool % self.fresh:
            yield f"algorithm.pool is {self.pool}; it must be a multiple of algorithm.fresh, {self.fresh}."

    def bytes_needed(self, config: Config, game: Subgames) -> Iterator[tuple[str, float]]:
        if config.network is not None and self.buckets is not None:
            larger = "algorithm.buckets" if self.buckets > config.network.width else "network.width"
            yield larger, 2 * 2 * 4.0 * self.buckets * config.network.width
        yield self._larger("batch_size", self.batch_size), self._encoded_bytes(game, self.batch_size)
        if self.fresh is not None:
            key, most = ("fresh", self.fresh) if self.pool is None else ("pool", self.pool)
            # Those that are kept, and beside them all together.
            yield self._larger(key, most), 2 * self._encoded_bytes(game, most)
        yield from network_bytes(config.network, 1)

    def bytes_on_disk(self, config: Config, game: Subgames) -> Iterator[tuple[str, float]]:
        kept = 1.0 if self.fresh is None else self.validation
        yield self._larger("subgames", self.subgames), self._encoded_bytes(game, kept * self.subgames)

    def _larger(self, key: str, subgames: int) -> str:
        """Which key is told of what so many subgames take: theirs, or that of the buckets, if these are more."""
        return "algorithm.buckets" if self.buckets is not None and self.buckets > subgames else f"algorithm.{key}"

    def _encoded_bytes(self, game: Subgames, subgames: float) -> float:
        """What inputs and targets of both players take."""
        hands = math.comb(game.deck.cards, 2)
        return 2 * 2 * 4.0 * (hands if self.buckets is None else self.buckets) * subgames


class Encoded(Dataset[Batch]):
    """Encoded subgames; an index is that of a whole batch.

    Args:
        rows: of which they are.
        chosen: `[n]` numbers of those that they are; None: all.
    """

    def __init__(self, rows: Rows[Batch], chosen: Tensor | None = None) -> None:
        self._rows, self._chosen = rows, torch.arange(len(rows)) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, rows: list[int]) -> Batch:
        return self._rows.take(self._chosen[rows])


class ShuffledBatches(Sampler[list[int]]):
    """Batches of all rows, in an order that seed and epoch name; `epoch` is asked whenever one begins.

    A last batch of fewer than `least` rows is left out.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, epoch: Callable[[], int], least: int = 1) -> None:
        self._rows, self._batch_size, self._seed, self._epoch = rows, batch_size, seed, epoch
        self._least = least

    def __len__(self) -> int:
        whole, rest = divmod(self._rows, self._batch_size)
        return whole + (rest >= self._least)

    def __iter__(self) -> Iterator[list[int]]:
        draw = generator(self._seed, "order of samples", self._epoch())
        order = torch.randperm(self._rows, generator=draw)
        return (batch.tolist() for batch in order.split(self._batch_size)[: len(self)])


class SubgameData:
    """Training and validation subgames. No board of one is, suits renamed, a board of the other, unless the split is by
    subgames.

    Args:
        subgames: which kind.
        algorithm: hyperparameters.
        target: `CFV` or `EV`.
        seed: names the order of the samples.
        folder: of the stored subgames.
        epoch: tells which epoch begins, which names the order with the seed.
        least: subgames in a batch to learn from; a last one of fewer is left out.
        device: where fresh subgames are solved.

    Attributes:
        buckets: how many there are, or hands of the deck where there are none.
        encoding_error, predicting_zero: of the validation subgames, in % of the pot; set by `setup`. What buckets alone
            err, and what a network errs that has learned nothing.
    """

    def __init__(
        self, subgames: Subgames, algorithm: SubgameDataConfig, target: str, seed: int, folder: Path,
        epoch: Callable[[], int] = lambda: 0, least: int = 1, device: str = "cpu",
    ) -> None:  # fmt: skip
        self._subgames, self._algorithm, self._target, self._seed = subgames, algorithm, target, seed
        deck, number = subgames.deck, algorithm.dataset
        self._folder, self._epoch, self._least = folder, epoch, least
        self._store = Store(folder, algorithm.recipe(subgames, number))
        self._pool: Pool | None = None
        if algorithm.fresh is not None:
            self._fresh_store = Store(folder, replace(self._store.recipe, seed=seed), device)
            blocks = 1 if algorithm.pool is None else algorithm.pool // algorithm.fresh
            self._pool = Pool(self._fresh_block, algorithm.fresh, blocks)
        self._recipe = None
        self.buckets = deck.cards * (deck.cards - 1) // 2
        if algorithm.buckets is not None:
            self._recipe = BucketRecipe(deck.ranks, deck.suits, subgames.board_cards, number, algorithm.buckets)
            self.buckets = algorithm.buckets
        self.inputs = 2 * self.buckets + 1 + (deck.cards if self._recipe is None else 0)

    @property
    def measured_on(self) -> str:
        """What decides the validation subgames and how they come in batches."""
        algorithm = self._algorithm
        decide = ("subgames", "validation", "split", "pot_of_stacks", "dataset", "buckets", "batch_size")
        keys = {key: getattr(algorithm, key) for key in decide}
        return json.dumps([str(self._store.folder), self._target, keys], sort_keys=True)

    @property
    def truth(self) -> Truth:
        """Of the validation subgames, after `setup`."""
        return self._truth.whole()

    def setup(self, stage: str) -> None:
        """Read and encode the subgames, onto the disk; with `stage` "validate" those for validation only.

        Raises:
            ReproError: some are not stored, none would be for training or none for validation, or too few to learn
                from as many as are asked for, or as a batch has.
        """
        training, validation = Rows(Batch, self._folder), Rows(Batch, self._folder)
        self._truth, ideal, zero = Rows(Truth, self._folder), list[Tensor](), list[Tensor]()
        learned_from = met = 0
        learns = stage != "validate" and self._pool is None
        for samples in self._stored():
            whole, truth = self.encoded(samples)
            held = torch.from_numpy(self._held_out(samples.board, met))
            met += len(held)
            learned_from += int((~held).sum())
            if learns:
                training.append(parts_of(whole, ~held))
            validation.append(parts_of(whole, held))
            validated = parts_of(truth, held)
            self._truth.append(validated)
            ideal.append(encoding_error(validated.cfv, validated.matchup, validated.bucket, self.buckets, self._target))
            zero.append(squared_error(validated.cfv, torch.zeros(())))
        self.encoding_error, self.predicting_zero = error(torch.cat(ideal)), error(torch.cat(zero))
        self._validation = Encoded(validation)
        self._check(len(self._validation), learned_from)
        _READ[self.measured_on] = self
        if learns:
            self._train = Encoded(training, self._chosen(len(training)))

    def _stored(self) -> Iterator[SubgameSamples]:
        """The stored subgames, a shard at a time; where networks learn from fresh ones, they are made if need be."""
        subgames, threads = self._algorithm.subgames, torch.get_num_threads()
        if self._pool is None:
            return self._store.shards(subgames, threads)
        return self._store.some(range(subgames), threads)

    def _chosen(self, subgames: int) -> Tensor | None:
        """Numbers of those to learn from; None: all."""
        if self._algorithm.learn_from is None:
            return None
        order = torch.randperm(subgames, generator=generator(self._seed, "learn from"))
        return order[: self._algorithm.learn_from]

    def _check(self, held: int, training: int) -> None:
        algorithm = self._algorithm
        if not (training and held):
            raise ReproError(
                f"algorithm.subgames is {algorithm.subgames}, of which {held} are for validation with "
                f"algorithm.validation={algorithm.validation}; more subgames are needed, or another share."
            )
        if algorithm.learn_from is not None and algorithm.learn_from > training:
            raise ReproError(
                f"algorithm.learn_from is {algorithm.learn_from}, but of algorithm.subgames={algorithm.subgames} only "
                f"{training} are not for validation."
            )
        if self._pool is None and algorithm.batch_size > training:
            raise ReproError(
                f"algorithm.batch_size is {algorithm.batch_size}, but there are only {training} subgames to learn "
                "from; take smaller batches or more subgames."
            )

    def train_dataloader(self) -> DataLoader[Batch]:
        """Batches in random order. Fresh subgames are those that `begin_epoch` was told of."""
        learned_from = self._train if self._pool is None else self._pool
        order = ShuffledBatches(len(learned_from), self._algorithm.batch_size, self._seed, self._epoch, self._least)
        return DataLoader(learned_from, sampler=order, batch_size=None)

    # -- fresh subgames ------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Draw and solve the fresh subgames of an epoch, from 0 on, those that are not in memory yet.

        Raises:
            ReproError: one could not be solved to the tolerance.
        """
        if self._pool is not None:
            self._pool.advance(epoch)

    def solved_by(self, epoch: int) -> int | None:
        """Fresh subgames that were solved when an epoch, from 0 on, had begun; None where there are none."""
        return None if self._pool is None else self._pool.made_by(epoch)

    def progress(self, epoch: int) -> dict[str, Any]:
        """What of fresh subgames a checkpoint must hold, for `restore`, when this epoch is the next."""
        return {} if self._pool is None else {"pool": self._pool.saved(epoch)}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `progress` gave."""
        if self._pool is not None:
            self._pool.restore(saved["pool"])

    def fresh_numbers(self, block: int) -> list[int]:
        """Numbers of a block's subgames. Boards that are for validation are left out, unless the split is by subgames:
        these have numbers of their own."""
        assert self._algorithm.fresh is not None
        left_out = None if self._algorithm.split == "subgames" else self._held_out
        return numbers_of(self._fresh_store.recipe, block, self._algorithm.fresh, left_out)

    def _fresh_block(self, block: int) -> Batch:
        return self.encoded(self._fresh_store.solved(self.fresh_numbers(block), torch.get_num_threads()))[0]

    # -- validation ----------------------------------------------------------------------------------------------

    def val_dataloader(self) -> DataLoader[Batch]:
        """Batches in order."""
        order = BatchSampler(range(len(self._validation)), self._algorithm.batch_size, drop_last=False)
        return DataLoader(self._validation, sampler=order, batch_size=None)

    def validation(self) -> Iterator[tuple[Tensor, Truth]]:
        """Inputs and truth of the validation subgames, a batch at a time, in order."""
        start = 0
        for batch in self.val_dataloader():
            end = start + len(batch.inputs)
            yield batch.inputs, self._truth.take(slice(start, end))
            start = end

    @cached_property
    def _stored_buckets(self) -> HandBuckets | None:
        return None if self._recipe is None else buckets.stored(self._folder, self._recipe)

    @cached_property
    def _side(self) -> tuple[Coding, Array]:
        """Codes of boards, and of every code a number in [0, 1) that decides which side it is on."""
        deck = self._subgames.deck
        coding = Coding(deck.ranks, deck.suits, (self._subgames.board_cards,), private=0)
        return coding, numpy_generator(self._algorithm.dataset, "validation").random(coding.codes)

    def buckets_of(self, boards: Array) -> Array:
        """`[n, hands]` int64 bucket of each hand, or without buckets its number among those of the deck."""
        if self._stored_buckets is not None:
            return self._stored_buckets.of_boards(boards).astype(np.int64)
        return self._subgames.deck.remaining_hands(boards)

    def encoded(self, samples: SubgameSamples) -> tuple[Batch, Truth]:
        """Solved subgames as networks see them, and what predictions are measured against."""
        bucket = self.buckets_of(samples.board)
        matchup = samples.matchups(self._subgames.deck).astype(np.float32)
        truth = Truth(*(torch.from_numpy(x) for x in (samples.cfv, matchup, samples.ranges, bucket)))
        return self._encoded(samples, truth), truth

    def _encoded(self, samples: SubgameSamples, truth: Truth) -> Batch:
        inputs = self.inputs_of(samples.board, samples.pot, truth.ranges, truth.bucket)
        values = truth.cfv if self._target == CFV else expected(truth.cfv, truth.matchup)
        occupied = sizes(truth.bucket, self.buckets)[:, None] > 0
        return Batch(inputs, averaged(values, truth.bucket, self.buckets), occupied)

    def inputs_of(self, boards: Array, pot: Array, ranges: Tensor, bucket: Tensor) -> Tensor:
        """`[n, inputs]` as networks take them: of `[n, cards]` boards, `[n]` chips in the pot, `[n, 2, hands]` ranges
        that sum to 1 and `[n, hands]` buckets."""
        inputs = [
            summed(ranges, bucket, self.buckets).flatten(1),
            torch.from_numpy(pot / (self._algorithm.pot_of_stacks * STACK)).float()[:, None],
        ]
        if self._recipe is None:
            cards = torch.zeros(len(boards), self._subgames.deck.cards)
            inputs.append(cards.scatter_(1, torch.from_numpy(boards).long(), 1.0))
        return torch.cat(inputs, 1)

    def _held_out(self, boards: Array, first: int = 0) -> Array:
        """`[n]` whether a subgame, of which the first has this number, is for validation: a random share of the
        canonical boards is, or of the subgames."""
        # A board, or a subgame, is on the same side however many others there are.
        if self._algorithm.split == "subgames":
            draws = numpy_generator(self._algorithm.dataset, "validation subgames").random(first + len(boards))[first:]
            return draws < self._algorithm.validation
        coding, draws = self._side
        codes = coding.encode(torch.from_numpy(boards).long()).numpy()
        held: Array = draws[codes] < self._algorithm.validation
        return held


_READ: WeakValueDictionary[str, SubgameData] = WeakValueDictionary()
"""By what decides them, the validation subgames that are read: they are gigabytes, and read in minutes."""


def validation_data(subgames: Subgames, algorithm: SubgameDataConfig, target: str, folder: Path) -> SubgameData:
    """The validation subgames of a configuration: those that a training in this process has read, or read now.

    Raises:
        ReproError: as `SubgameData.setup`.
    """
    data = SubgameData(subgames, algorithm, target, 0, folder)
    cached = _READ.get(data.measured_on)
    if cached is None:
        data.setup("validate")
        return data
    return cached
