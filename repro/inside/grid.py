"""A grid of starting hands, 13 x 13 with a full deck: pairs on the diagonal, suited hands above it, others below.

Every cell is the mean over the suits of its hands that the board leaves, each weighted by how often the player's own
actions bring it to the betting node. The height of the coloured part is that share of the cell's hands, its colours are
the frequencies of the actions.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from repro.common import durable
from repro.games.betting import ALL_IN, CALL, FOLD, RAISE
from repro.games.card_names import rank_names
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.games.lines import action_with_chips, legal_actions, place_in_words
from repro.inside.strategies import Hands, Played

_COLOURS = {FOLD: "#7f9fc6", CALL: "#5aa469", RAISE: "#d9743f", ALL_IN: "#8c2d2d"}
_EMPTY = "#f1f1f1"


def frequencies(game: Game, hands: Hands, played: Played) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`[ranks, ranks, actions]` how often each action is taken, and `[ranks, ranks]` how often the node is reached.

    The first row and column are of the highest rank. A cell whose hands never come here has the plain mean over them;
    one of which the board leaves no hand has nan in both.
    """
    cards = game.cards
    assert isinstance(cards, HoldemCards)
    assert hands.cards is not None
    rank, suit = hands.cards // cards.suits, hands.cards % cards.suits
    low, high = rank.min(1).values, rank.max(1).values
    suited = suit[:, 0] == suit[:, 1]
    row = cards.ranks - 1 - np.where(suited, high, low)
    column = cards.ranks - 1 - np.where(suited, low, high)
    cell = row * cards.ranks + column

    def summed(values: Tensor) -> NDArray[np.float64]:
        return np.bincount(cell, values.double().cpu().numpy(), cards.ranks**2).astype(np.float64)

    count, reach = np.bincount(cell, minlength=cards.ranks**2), summed(played.arrival)
    columns = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for probability in played.probabilities.unbind(1):
            plain = summed(probability) / count
            columns.append(np.where(reach > 0, summed(probability * played.arrival) / reach, plain))
        arrival = reach / count
    shape = (cards.ranks, cards.ranks)
    return np.stack(columns, 1).reshape(*shape, -1), arrival.reshape(shape)


def draw(game: Game, node: int, hands: Hands, played: Played, title: str, path: Path) -> None:
    """Write the picture, a PNG or whatever the file's name ends with."""
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  (after the choice above)
    from matplotlib.patches import Patch, Rectangle  # noqa: PLC0415

    assert isinstance(game.cards, HoldemCards)
    ranks = game.cards.ranks
    names = rank_names(ranks)[::-1]
    share, arrival = frequencies(game, hands, played)
    actions = legal_actions(game, node)
    size = 1.6 + 0.55 * ranks
    figure, axes = plt.subplots(figsize=(size, size + 0.4))
    for row in range(ranks):
        for column in range(ranks):
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=_EMPTY, edgecolor="white", linewidth=1.5))
            height, left = np.nan_to_num(arrival[row, column]), float(column)
            for action in actions[::-1] if height > 0 else ():
                width = float(share[row, column, action])
                corner = (left, row + 1 - height)
                axes.add_patch(Rectangle(corner, width, height, facecolor=_COLOURS[action], linewidth=0))
                left += width
            axes.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor="white", linewidth=1.5))
            faint = "#999999" if not height > 0 else "black"
            axes.text(column + 0.08, row + 0.3, _name(names, row, column), fontsize=7.5, color=faint)
    axes.set(xlim=(0, ranks), ylim=(ranks, 0), aspect="equal")
    axes.axis("off")
    axes.set_title(title, fontsize=9)
    legend = [Patch(color=_COLOURS[a], label=action_with_chips(game, node, a)) for a in actions[::-1]]
    axes.legend(handles=legend, ncols=len(legend), loc="upper center", bbox_to_anchor=(0.5, 0), frameon=False,
                title="height: how often its own actions bring the hand here", title_fontsize=7.5)  # fmt: skip
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=150, bbox_inches="tight")
    plt.close(figure)
    durable.write(path, content.getvalue())


def _name(names: Sequence[str], row: int, column: int) -> str:
    """`AA`, `AKs` or `AKo`."""
    kind = "" if row == column else "s" if row < column else "o"
    return names[min(row, column)] + names[max(row, column)] + kind


def title_of(agent: str, game: Game, node: int, board: str) -> str:
    """What a picture is of."""
    public = f", board {board}" if board else ""
    return f"{game.name}, player {int(game.tree.player[node])} {place_in_words(game, node)}{public}\n{agent}"
