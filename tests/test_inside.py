"""What inspect and play show of an agent: strategies, exact values, pictures and hands, against other engines."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from repro import inspect
from repro.common.errors import ReproError
from repro.engine.holdem_form import HoldemForm
from repro.engine.sequence_form import SequenceForm
from repro.evaluation.averages import tabulated
from repro.games import Game, load
from repro.games.card_names import card_names, read_cards
from repro.games.hand_strength import hand_strength
from repro.games.holdem import HoldemCards
from repro.games.lines import action_with_chips, line_in_words, path_to, read_line
from repro.inside import grid
from repro.inside.agent import Agent
from repro.inside.strategies import Played, hands_at, infosets_of, played_at, read_hand
from repro.inside.values import BoardValues, OneCardValues, board_losses
from repro.interop import openspiel
from repro.play import Session
from repro.policies import TabularPolicy, random_policy
from repro.policies.base import table_of
from repro.policies.network import Uniform
from tests.helpers.draws import random_table, seeded
from tests.helpers.policies import ensemble_of, strategies_that_differ
from tests.helpers.reference_holdem import game_of

# -- cards and lines -------------------------------------------------------------------------------------------------


def test_cards_are_read_as_they_are_written():
    names = card_names(13, 4)
    assert names[0] == "2c"
    assert names[-1] == "As"
    for text in ("Ah Kd 2c", "AhKd2c", "ah,KD,2C"):
        assert [names[card] for card in read_cards("--board", text, names, 3)] == ["Ah", "Kd", "2c"]
    for text in ("Ah Kd", "Ah Ah Kd", "Ax Kd 2c", "Ah Kd 2", ""):
        with pytest.raises(ReproError, match=r"--board is .*3 different cards, from 2c to As"):
            read_cards("--board", text, names, 3)
    for count, sentence in ((1, "--board is missing; it must be one card, from 2c to As."), (3, "--board is missing")):
        with pytest.raises(ReproError, match=sentence):
            read_cards("--board", "", names, count)
    with pytest.raises(ReproError, match=r"--board is 'Ah'; it must be empty\.$"):
        read_cards("--board", "Ah", names, 0)
    assert load("big_leduc").one_card.class_names == list("23456789TJQK")
    assert load("leduc", ranks=20, suits=1).one_card.class_names[-1] == "19"


@pytest.mark.parametrize("name", ["kuhn", "leduc", "fhp", "fhp_limit", "hnlh"])
def test_lines_are_read_as_they_are_written(name):
    parameters: dict[str, Any] = {"stack": 500.0} if name == "hnlh" else {}
    game = load(name, **parameters)
    decisions = [node for node in range(1, game.tree.nodes) if game.tree.player[node] >= 0][:500]
    for node in decisions:
        assert read_line(game, "--line", line_in_words(game, node)) == node
        assert path_to(game, node)[-1][0] == int(game.tree.parent[node])


def test_chips_count_from_where_the_round_began():
    leduc, fhp = load("leduc"), load("fhp")
    assert [action_with_chips(leduc, read_line(leduc, "", "bet"), a) for a in range(3)] == [
        "fold",
        "call 2",
        "raise to 4",
    ]
    node = read_line(leduc, "", "bet call / bet")
    assert [action_with_chips(leduc, node, a) for a in range(3)] == ["fold", "call 4", "raise to 8"]
    assert action_with_chips(fhp, 0, 2) == "raise to 300"
    assert action_with_chips(fhp, read_line(fhp, "", "raise call"), 2) == "bet 600"


@pytest.mark.parametrize(
    ("line", "told"),
    [("bet check", "none of fold, call, raise"), ("fold", "first to act 'fold' is none of check, bet."),
     ("hum", "'hum'"), ("check check / check check", "the hand is over"),
     ("check check check check check", "the hand is over")],
)  # fmt: skip
def test_what_nobody_can_do_is_refused(line, told):
    with pytest.raises(ReproError, match=told):
        read_line(load("leduc"), "--line", line)


# -- values ----------------------------------------------------------------------------------------------------------


def spiel_action_values(game: Game, table: Tensor) -> dict[tuple[str, int], float]:
    """Information state and OpenSpiel's action -> expected value, by going through all of OpenSpiel's states."""
    spiel = openspiel.openspiel_game(game)
    policy = openspiel.to_openspiel(game, TabularPolicy(table))
    weight: dict[str, float] = defaultdict(float)
    total: dict[tuple[str, int], float] = defaultdict(float)

    def value(state: Any, reach: Sequence[float]) -> np.ndarray:
        if state.is_terminal():
            return np.array(state.returns())
        if state.is_chance_node():
            return sum(
                p * value(state.child(a), (reach[0], reach[1], reach[2] * p)) for a, p in state.chance_outcomes()
            )
        player, key = state.current_player(), state.information_state_string()
        others = reach[1 - player] * reach[2]
        weight[key] += others
        mean = np.zeros(2)
        for action, p in policy.action_probabilities(key).items():
            after = list(reach)
            after[player] *= p
            won = value(state.child(action), after)
            total[key, action] += others * won[player]
            mean += p * won
        return mean

    value(spiel.new_initial_state(), (1.0, 1.0, 1.0))
    return {(key, action): chips / weight[key] for (key, action), chips in total.items()}


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_values_of_actions_agree_with_openspiel(name):
    pytest.importorskip("pyspiel")
    game = load(name)
    table = table_of(game, random_policy(game, seeded(5)))
    found, by_spiel = OneCardValues(game, [TabularPolicy(table)] * 2), spiel_action_values(game, table)
    situations = openspiel._situations(game, openspiel.openspiel_game(game))
    compared = 0
    for situation, infoset in zip(situations, openspiel._infosets(game, situations).tolist(), strict=True):
        key = situation.state.information_state_string()
        for action, spiel_action in situation.actions:
            assert float(found.values.played[infoset, action]) == pytest.approx(by_spiel[key, spiel_action], abs=1e-9)
            compared += 1
    assert compared >= int(game.legal.sum())


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_values_at_best_add_up_to_best_responses(name):
    game = load(name)
    table = table_of(game, random_policy(game, seeded(6)))
    found, engine = OneCardValues(game, [TabularPolicy(table)] * 2), SequenceForm(game)
    best = engine.best_response_values(table)
    own, hands = slice(0, game.cards.cells[0]), game.cards.cells[0]
    assert float(found.values.at_best[own].nan_to_num(-torch.inf).amax(1).sum()) / hands == pytest.approx(
        float(best[0])
    )
    against = (found.values.against_best[own].nan_to_num() * table[own]).sum()
    assert float(against) / hands == pytest.approx(-float(best[1]))


def test_an_opponent_who_never_comes_has_no_values():
    game = load("kuhn")
    table = game.uniform.clone()
    table[game.infoset_node == 0] = torch.tensor([0.0, 1.0, 0.0], dtype=table.dtype)
    values = OneCardValues(game, [TabularPolicy(table)] * 2).values
    bet, checked = read_line(game, "", "bet"), read_line(game, "", "check")
    assert bool(values.played[game.infoset_node == bet].isnan().all())
    assert not bool(values.played[game.infoset_node == checked][:, 1].isnan().any())


def test_what_never_met_means_is_told_where_it_is_shown(capsys):
    game = load("kuhn")
    table = game.uniform.clone()
    table[game.infoset_node == 0] = torch.tensor([0.0, 1.0, 0.0], dtype=table.dtype)
    agent = Agent("who never bets first", game, [TabularPolicy(table)] * 2)
    for line, hand, is_told in (("bet", "", True), ("bet", "K", True), ("check", "", False)):
        inspect.show_position(agent, line, "", hand)
        assert ("never met: no hand of an opponent" in capsys.readouterr().out) == is_told


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_losses_are_what_acting_otherwise_there_gains(name):
    game = load(name)
    table = table_of(game, random_policy(game, seeded(7)))
    found, engine = OneCardValues(game, [TabularPolicy(table)] * 2), SequenceForm(game)
    before, losses = engine.expected_values(table), found.losses()
    assert [loss.chips for loss in losses] == sorted((loss.chips for loss in losses), reverse=True)
    for loss in losses:
        here, player = game.infoset_node == loss.node, int(game.tree.player[loss.node])
        best = engine.action_values(table).masked_fill(~game.legal, -torch.inf).argmax(1)
        replaced = table.clone()
        replaced[here] = torch.nn.functional.one_hot(best[here], game.num_actions).to(table)
        assert float(engine.expected_values(replaced)[player] - before[player]) == pytest.approx(loss.chips, abs=1e-12)
        assert sum(chips for _, chips in loss.infosets) == pytest.approx(loss.chips)


def test_values_on_one_board_are_those_of_all_boards():
    game = game_of("fhp")
    form, table = HoldemForm(game), random_table(game, 2)
    assert isinstance(game.cards, HoldemCards)
    names = game.cards.names
    board = f"{names[0]} {names[3]} {names[6]}"
    for line in ("raise call", "raise call / check bet", "raise call / bet"):
        node = read_line(game, "", line)
        player = int(game.tree.player[node])
        hands = hands_at(game, node, board)
        infosets = infosets_of(game, node, hands)
        assert hands.board is not None
        found = BoardValues(game, [TabularPolicy(table)] * 2, hands.board).at(node, hands)
        reach = form.others_reach(table, player)[infosets, None]
        for shown, values in (
            (found.played, form.action_values(table)),
            (found.at_best, torch.from_numpy(best_values(form, table, player))),
        ):
            legal = game.legal_at(infosets)
            assert shown[legal].numpy() == pytest.approx((values[infosets] / reach)[legal].numpy(), abs=1e-9)
            assert bool(shown[~legal].isnan().all())
    losses = board_losses(game, [TabularPolicy(table)] * 2, None, 0)
    assert losses[0].chips == pytest.approx(max(v for p in range(2) for v in form.deviations(table, p).at.values()))


def test_a_hand_has_the_values_that_it_has_among_all():
    """The opponent bets with one card alone, so that who holds that card meets nobody, whoever else is asked about."""
    game = game_of("fhp")
    assert isinstance(game.cards, HoldemCards)
    names = game.cards.names
    board, line = f"{names[0]} {names[3]} {names[6]}", "raise call / bet"
    node, bet = read_line(game, "", line), game.actions.index("raise")
    before = read_line(game, "", "raise call")
    hands = hands_at(game, before, board)
    table = random_table(game, 2)  # With which sums leave rounding errors where nobody is met.
    rows = infosets_of(game, before, hands)
    others = rows[["Kc" not in name for name in hands.names]]
    table[others, bet] = 0.0
    table[others] /= table[others].sum(1, keepdim=True)
    answering = hands_at(game, node, board)
    values = BoardValues(game, [TabularPolicy(table)] * 2, answering.board)  # type: ignore[arg-type]
    among_all = values.at(node, answering)
    met = ~among_all.played.isnan().all(1)
    assert 0 < int(met.sum()) < len(met)
    for i in [int(met.nonzero()[0]), *(~met).nonzero()[:, 0].tolist()]:
        alone = values.at(node, answering.only(torch.tensor([i])))
        torch.testing.assert_close(alone.played[0], among_all.played[i], equal_nan=True)


def best_values(form: HoldemForm, table: Tensor, player: int) -> np.ndarray:
    q = np.zeros(table.shape)
    form.evaluate(table, player, best_response=True, action_values=q)
    return q


# -- strategies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_a_mixture_is_shown_as_its_average(name):
    game = load(name)
    seats = [ensemble_of(game, strategies_that_differ(game))] * 2
    table, reach = tabulated(game, seats).table, SequenceForm(game)
    for node in (n for n in range(game.tree.nodes) if game.tree.player[n] >= 0):
        for board in [""] if not game.cards.board_cards[int(game.tree.round[node])] else ["J", "Q", "K"]:
            hands = hands_at(game, node, board)
            played, infosets = played_at(game, seats, node, hands), infosets_of(game, node, hands)
            arrives = played.arrival > 0
            assert torch.allclose(played.probabilities[arrives], table[infosets][arrives], atol=1e-6)
            assert torch.allclose(played.arrival, reach.own_reach(table)[infosets], atol=1e-6)


def test_hands_are_those_that_the_board_leaves():
    leduc = load("leduc")
    node = read_line(leduc, "", "check check")
    assert hands_at(leduc, node, "K").names == ["J", "Q", "K"]
    assert read_hand(hands_at(leduc, node, "Kd"), "Kc", leduc).names == ["K"]
    fhp = load("fhp")
    hands = hands_at(fhp, read_line(fhp, "", "raise call"), "Ah Kd 2c")
    assert len(hands) == 49 * 48 // 2
    infoset = int(infosets_of(fhp, read_line(fhp, "", "raise call"), read_hand(hands, "KsAs", fhp)))
    assert re.search(r"hand K.A., board 2.K.A.", fhp.describe(infoset))
    for text, told in (("Ah Ks", "a card of it is on the board"), ("AsK", "2 different cards")):
        with pytest.raises(ReproError, match=told):
            read_hand(hands, text, fhp)
    with pytest.raises(ReproError, match="--board is missing"):
        hands_at(leduc, node, "")
    with pytest.raises(ReproError, match="--hand is 'A'"):
        read_hand(hands_at(leduc, 0, ""), "A", leduc)


def test_a_grid_is_the_mean_over_suits(tmp_path):
    game = load("fhp")
    hands = hands_at(game, 0, "")
    arrival, probabilities = torch.rand(len(hands), generator=seeded(1)), torch.zeros(len(hands), 3)
    probabilities[:, 0] = torch.rand(len(hands), generator=seeded(2))
    probabilities[:, 2] = 1 - probabilities[:, 0]
    share, reached = grid.frequencies(game, hands, Played(probabilities, arrival))
    for text, row, column in (("AK suited", 0, 1), ("KA offsuit", 1, 0), ("QQ", 2, 2)):
        ranks, suited = set(text[:2]), "suited" in text
        mine = [
            i for i, name in enumerate(hands.names)
            if {name[0], name[2]} == ranks and (len(ranks) == 1 or (name[1] == name[3]) == suited)
        ]  # fmt: skip
        assert len(mine) == {"AK suited": 4, "KA offsuit": 12, "QQ": 6}[text]
        weight = arrival[mine]
        assert reached[row, column] == pytest.approx(float(weight.mean()))
        mean = float((weight * probabilities[mine, 0]).sum() / weight.sum())
        assert share[row, column].tolist() == pytest.approx([mean, 0, 1 - mean])
    path = tmp_path / "grid.png"
    grid.draw(game, 0, hands, Played(probabilities, arrival), "a title", path)
    assert path.read_bytes().startswith(b"\x89PNG")


# -- playing ---------------------------------------------------------------------------------------------------------


def session(game: Game, words: list[str], seed: int = 0, hands: int | None = None, seats: Any = None) -> list[str]:
    """What is said to a person who says these words, and then no more."""
    said, waiting = list[str](), iter(words)
    agent = Agent("an agent", game, seats or [Uniform(game)] * 2)
    Session(agent, seed, lambda: next(waiting, None), said.append).play(hands)
    return said


GAMES: dict[str, dict[str, Any]] = {
    "kuhn": {}, "leduc": {}, "fhp": {}, "fhp_limit": {}, "hnlh": {"stack": 1000.0}, "hunl_pot": {"stack": 1000.0},
}  # fmt: skip


@pytest.mark.parametrize("name", GAMES)
def test_hands_are_played_to_their_end_and_counted(name):
    game = load(name, **GAMES[name])
    words = ["c" if i % 3 else "r" for i in range(300)]
    said = session(game, words, seed=4, hands=12)
    assert sum("you are player 0" in line for line in said) == sum("you are player 1" in line for line in said) == 6
    won = [
        float(found[2]) * (1 if found[1] == "win" else -1)
        for line in said if (found := re.search(r"you (win|lose) ([\d.]+) chips", line))
    ]  # fmt: skip
    score = re.fullmatch(r"you: ([+-][\d.]+|\+0) (antes|big blinds) after 12 hands \([+-]?\d+ m.*/g\)", said[-1])
    assert score is not None
    assert float(score[1]) == pytest.approx(sum(won) / game.chips_per_unit, rel=1e-4)
    assert score[2] == ("antes" if game.unit == "mA/g" else "big blinds")
    assert session(game, words, seed=4, hands=12) == said
    assert session(game, words, seed=5, hands=12) != said


def test_questions_and_words_that_are_none():
    game = load("leduc")
    table = table_of(game, random_policy(game, seeded(8)))
    said = session(game, ["?", "what", "c", "?", "q", "c"], seats=[TabularPolicy(table)] * 2)
    assert any("has not acted in this hand" in line for line in said)
    assert any("'what' is none of these" in line for line in said)
    assert sum(line.startswith("    with ") for line in said) >= 3
    assert said[-1].startswith("you: +0 antes after 0 hands")
    first = next(line for line in said if "your actions" in line)
    hand = next(found[1] for line in said if (found := re.search(r"your hand (\w)", line)))
    values = OneCardValues(game, [TabularPolicy(table)] * 2).values.at_best[game.one_card.class_names.index(hand)]
    assert [float(x) for x in re.findall(r"[+-]\d\.\d{3}", first)] == pytest.approx(values[1:].tolist(), abs=6e-4)
    large = session(load("hunl_pot", stack=1000.0), ["?", "c", "?"])
    assert any("not available in hunl_pot" in line for line in large)


def test_on_the_flop_actions_have_exact_values():
    """Against who plays all hands alike a check that ends the hand is worth the stake times how often hers is best."""
    game = load("fhp_limit", ranks=6, suits=3)
    cards = game.cards
    assert isinstance(cards, HoldemCards)
    said = session(game, ["?", "c"] * 40, seed=3, hands=8)
    assert any("only once the board is dealt" in line for line in said)
    compared = 0
    for i, line in enumerate(said):
        if "your actions, in chips" not in line or said[i + 2 : i + 3] != ["  you: check"]:
            continue
        if not said[i + 3].startswith("  showdown"):
            continue
        where = next(said[j] for j in range(i, 0, -1) if "your hand" in said[j])
        found = re.search(r"your hand (\w\w) (\w\w), board (\w\w) (\w\w) (\w\w), (\d+) chips", where)
        assert found is not None
        hand, board = ([cards.names.index(name) for name in found.groups()[s]] for s in (slice(2), slice(2, 5)))
        rest = [card for card in range(len(cards.names)) if card not in hand + board]
        fives = torch.tensor([hand + board, *([*pair, *board] for pair in itertools.combinations(rest, 2))])
        mine, *theirs = hand_strength(fives // 3 + 13 - cards.ranks, fives % 3).tolist()
        best = np.mean([np.sign(mine - other) for other in theirs])
        (check,) = re.findall(r"check ([+-]\d+\.\d+)", line)
        assert float(check) == pytest.approx(best * float(found[6]) / 2, abs=1e-3)
        compared += 1
    assert compared >= 2


def test_the_end_of_the_input_quits():
    said = session(load("kuhn"), [])
    assert said[-1] == "you: +0 antes after 0 hands"


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["0123456789ab"], "there is no run with the key"),
        (["none.pt"], "there is no file none.pt"),
        (["x", "--lost", "0"], "--lost is 0"),
        (["x", "--lost", "--seed", "-1"], "--seed is -1; it must be a whole number from 0 to "),
        (["x", "--lost", "--boards", "many"], "--boards is 'many'; it must be all"),
        (["x", "--lost", "--line", "check bet"], "--line and --board go with one position or --grid"),
        (["x" * 300], "there is no run with the key"),
        (["x", "--csv", "a.csv"], "--csv goes with --all"),
        (["x", "--hand", "K", "--all"], "--hand is 'K'"),
        (["x", "--all", "--csv", "a.txt"], "--csv is 'a.txt'; its name must end in .csv, .csv.gz, .parquet."),
        (["x", "--all", "--csv", "no/a.csv"], "--csv is 'no/a.csv'; there is no folder"),
        (["x", "--grid", "a"], "--grid is 'a'; its name must end in .png"),
        (["x", "--grid", "/dev/null/a.png"], "there is no folder /dev/null"),
    ],
)
def test_faulty_requests_are_refused_in_one_sentence(arguments, told, tmp_path, capsys):
    assert inspect.main([*arguments, "--output", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert told in shown.err
    assert shown.err.count("\n") == 1
    assert not list(Path(tmp_path).iterdir())
