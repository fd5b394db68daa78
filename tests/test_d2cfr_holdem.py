"""D2CFR on Hold'em: what it shares with Deep CFR there, rectified strategies, the policy loss, and runs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from repro import run
from repro.algorithms.d2cfr import rectification_weight
from repro.algorithms.d2cfr_holdem import HoldemD2CFR
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.memory import Minibatch
from repro.config import D2CFRConfig, DeepCFRConfig, NetworkConfig, ReadoutConfig
from repro.engine.beliefs import Beliefs
from repro.errors import ReproError
from repro.evaluation.head_to_head import play_match
from repro.games import Game, load
from repro.policies.ensemble import load_average_networks, load_networks
from repro.policies.network import Uniform
from repro.policies.regret_matching import regret_matching
from tests.small import small_config, straight_and_resumed

DNET, FC = NetworkConfig("dnet", 12), NetworkConfig("fc", 12, 2)


def small_game() -> Game:
    return load("hnlh", ranks=6, suits=2, stack=500.0)


def config(**changes: Any) -> D2CFRConfig:
    base = small_config(readouts={"d2cfr": ReadoutConfig("average_network")}, regret_unit=100.0)
    given = {f.name: getattr(base, f.name) for f in fields(DeepCFRConfig)}
    plain = {
        "rectification": "none", "policy_every": 2, "divide_by_legal": False, "when_no_positive": "uniform",
        "match_hands": 200, "opponents": {"uniform": "-"},
    }  # fmt: skip
    return D2CFRConfig(**{**given, **plain, **changes})


def d2cfr(game: Game, network: NetworkConfig = DNET, seed: int = 0, **changes: Any) -> HoldemD2CFR:
    return HoldemD2CFR(game, config(**changes), network, seed, {"uniform": Uniform(game)})


def steps_of(model: Any, steps: int) -> Any:
    for _ in range(steps):
        model.training_step(None, 0)
    return model


PLAYED: dict[str, Any] = {"rectification": "play_outs", "simulations": 3}


@pytest.fixture(scope="module")
def rectified() -> HoldemD2CFR:
    """After four iterations with all parts. Tests must not change it."""
    return steps_of(d2cfr(small_game(), kl_weight=0.3, iterations=4, **PLAYED), 4)


@pytest.mark.slow
def test_without_its_parts_it_is_deep_cfr():
    """Bitwise: no DNet, no rectification, no divergence."""
    game = small_game()
    ours = steps_of(d2cfr(game, FC), 4)
    base = small_config(readouts={"d2cfr": ReadoutConfig("average_network")}, divide_by_legal=False, regret_unit=100.0,
                        when_no_positive="uniform", match_hands=200, opponents={"uniform": "-"})  # fmt: skip
    theirs = steps_of(HoldemDeepCFR(game, base, FC, 0, {"uniform": Uniform(game)}), 4)
    for player in range(2):
        assert torch.equal(ours.stored[player][-1], theirs.stored[player][-1])
        assert (len(ours.stored[player]), ours.fitted[player]) == (1, 4)
        mine, others = (model.average_networks[player].parameters() for model in (ours, theirs))
        for a, b in zip(mine, others, strict=True):
            assert torch.equal(a, b)
        assert torch.equal(ours.openings[player].average(), theirs.openings[player].average())
    for metric in ("match/uniform/value", "loss/policy", "nodes_touched"):
        assert ours.metrics["d2cfr"][metric] == theirs.metrics["d2cfr"][metric]


@pytest.mark.slow
def test_strategies_are_matched_to_rectified_regrets(rectified, monkeypatch):
    """The formula of eq. 6 with made-up values of play-outs; in the first betting round, the table."""
    game, played = rectified.game, []

    def made_up(self: Beliefs, policy: Any, infosets: torch.Tensor, simulations: int, draw: Any) -> torch.Tensor:
        assert len(infosets.unique()) == len(infosets)
        assert simulations == 3
        played.append(infosets)
        return (infosets % 13 - 6).double() * 100

    monkeypatch.setattr(Beliefs, "played_out", made_up)
    traversals = rectified.engine.external_sampling(Uniform(game), 0, 100, torch.Generator().manual_seed(0))
    infosets = traversals.advantages.infosets
    found = rectified.current_policy().probabilities(infosets)
    late = (game.tree.round[game.locate(infosets)[0]] > 0).nonzero().flatten()
    assert set(torch.cat(played).tolist()) == set(infosets[late].tolist())
    features, legal = rectified.features.rows(infosets[late])
    output = rectified.value_networks[0](features, legal).detach()
    beta = rectification_weight(4, "printed")
    shift = beta * (output[:, -1] - (infosets[late] % 13 - 6))
    expected = regret_matching(output[:, :-1] + shift[:, None], legal, "uniform")
    torch.testing.assert_close(found[late], expected, rtol=1e-4, atol=1e-5)
    plain = HoldemDeepCFR.current_policy(rectified).probabilities(infosets)
    torch.testing.assert_close(plain[late], regret_matching(output[:, :-1], legal, "uniform"), rtol=1e-4, atol=1e-5)
    assert (found[late] - plain[late]).abs().max() > 0.1
    early = (game.tree.round[game.locate(infosets)[0]] == 0).nonzero().flatten()
    torch.testing.assert_close(found[early], plain[early])


@pytest.mark.slow
def test_divergence_is_from_the_mean_of_the_last_policies(rectified):
    assert [len(recent) for recent in rectified.recent] == [2, 2]
    mine = rectified.game.player_slice[0]
    draw = torch.Generator().manual_seed(0)
    sampled = rectified.engine.external_sampling(Uniform(rectified.game), 1, 50, draw).opponent_strategies.infosets
    infosets = sampled[rectified.game.tree.round[rectified.game.locate(sampled)[0]] > 0][:20] - mine.start
    batch = rectified._with_inputs(Minibatch(infosets, torch.ones(20, 1), torch.zeros(20, 4), torch.zeros(())), 0)
    found = rectified.reference(0)(batch)
    network = rectified.build("average")
    outputs = []
    for flat in rectified.recent[0]:
        torch.nn.utils.vector_to_parameters(flat, network.parameters())
        outputs.append(network(*batch.inputs).detach())
    torch.testing.assert_close(found, (outputs[0] + outputs[1]) / 2)
    torch.testing.assert_close(outputs[1], rectified.average_networks[0](*batch.inputs).detach())


@pytest.mark.slow
def test_its_policy_networks_are_measured_against_opponents(rectified):
    seats = rectified._average_seats()
    match = play_match(rectified.game, seats, Uniform(rectified.game), 200, rectified.draws("match"))
    assert rectified.metrics["d2cfr"]["match/uniform/value"] == pytest.approx(10 * match.mean)


@pytest.mark.slow
def test_resuming_equals_never_stopping(tmp_path):
    def make() -> HoldemD2CFR:
        return d2cfr(small_game(), kl_weight=0.5, policy_every=1, traversals=60, **PLAYED)

    straight, resumed = straight_and_resumed(make, 4, 2, tmp_path)
    for ours, theirs in ((straight.stored, resumed.stored), (straight.recent, resumed.recent)):
        for player in range(2):
            for a, b in zip(ours[player], theirs[player], strict=True):
                assert torch.equal(a, b)
    assert straight.metrics["d2cfr"]["match/uniform/value"] == resumed.metrics["d2cfr"]["match/uniform/value"]


@pytest.mark.slow
def test_what_it_leaves_is_played_as_an_average_network_only(rectified, tmp_path):
    plain = {
        "game": {"name": "hnlh", "ranks": 6, "suits": 2, "stack": 500.0},
        "network": {"architecture": "dnet", "width": 12},
        "algorithm": {"when_no_positive": "uniform", "readouts": {"d2cfr": {"kind": "average_network"}}},
    }
    torch.save({"config": plain, **rectified.artifact()}, tmp_path / "networks.pt")
    draw = torch.Generator().manual_seed(0)
    infosets = rectified.engine.external_sampling(Uniform(rectified.game), 0, 50, draw).advantages.infosets
    loaded = load_average_networks(rectified.game, tmp_path / "networks.pt")[0]
    expected = rectified._average_seats()[0].probabilities(infosets)
    torch.testing.assert_close(loaded.probabilities(infosets), expected)
    with pytest.raises(ReproError, match=r"holds no B\^M, which only Deep CFR leaves"):
        load_networks(rectified.game, tmp_path / "networks.pt")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["algorithm.rectification=exact", "algorithm.simulations=null"],
            "algorithm.rectification is exact; the game hnlh has too many infosets",
        ),
        (["seeds=[0,1]"], "seeds is [0, 1], but the algorithm d2cfr trains one at a time"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        run.plan(["game=hnlh", "algorithm=d2cfr", *overrides], multirun=False)
    assert sentence in str(caught.value)
