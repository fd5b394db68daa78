"""D2CFR on Hold'em: what it shares with Deep CFR there, rectified strategies, the policy loss, and runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repro.algorithms.d2cfr import D2CFR, rectification_weight
from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.minibatches import Minibatch
from repro.common.errors import ReproError
from repro.config import NetworkConfig, ReadoutConfig
from repro.engine.beliefs import Beliefs
from repro.evaluation.head_to_head import play_match
from repro.games import Game, load
from repro.plans.planning import plan
from repro.policies.network import Uniform
from repro.policies.regret_matching import regret_matching
from repro.policies.snapshot import SnapshotFolder
from tests.helpers.deep_cfr import asked, d2cfr_config, small_config
from tests.helpers.training import advanced, seats_of, straight_and_resumed

DNET, FC = NetworkConfig("dnet", 12), NetworkConfig("fc", 12, 2)


def small_game() -> Game:
    return load("hnlh", ranks=6, suits=2, stack=500.0)


def d2cfr(game: Game, network: NetworkConfig = DNET, seed: int = 0, **changes: Any) -> D2CFR:
    return D2CFR(game, d2cfr_config(**{"regret_unit": 100.0, **changes}), network, seed)


PLAYED: dict[str, Any] = {"rectification": "play_outs", "simulations": 3}


@pytest.fixture(scope="module")
def rectified() -> D2CFR:
    """After four iterations with all parts. Tests must not change it."""
    return advanced(d2cfr(small_game(), kl_weight=0.3, iterations=4, **PLAYED), 4)


def test_without_its_parts_it_is_deep_cfr():
    """Bitwise: no DNet, no rectification, no divergence."""
    game = small_game()
    ours = advanced(d2cfr(game, FC), 4)
    base = small_config(readouts={"d2cfr": ReadoutConfig("average_network")}, divide_by_legal=False, regret_unit=100.0,
                        when_no_positive="uniform")  # fmt: skip
    theirs = advanced(DeepCFR(game, base, FC, 0), 4)
    for player in range(2):
        for mine, other in zip(
            ours.value_networks[player].parameters(), theirs.value_networks[player].parameters(), strict=True
        ):
            assert torch.equal(mine, other)
        assert asked(ours).fitted[player] == 4
        own, others = (model.average_networks[player].parameters() for model in (ours, theirs))
        for a, b in zip(own, others, strict=True):
            assert torch.equal(a, b)
        openings = [model.strategies.openings[player].average() for model in (ours, theirs)]
        assert torch.equal(*openings)
    assert ours.policy_loss == theirs.policy_loss
    assert ours.nodes_touched == theirs.nodes_touched


@pytest.mark.exhaustive
def test_strategies_are_matched_to_rectified_regrets(rectified, monkeypatch):
    """The formula of eq. 6 with made-up values of play-outs; in the first betting round, the table."""
    game, played = rectified.game, []

    def made_up(self: Beliefs, policy: Any, infosets: torch.Tensor, simulations: int, draw: Any) -> torch.Tensor:
        assert len(infosets.unique()) == len(infosets)
        assert simulations == 3
        played.append(infosets)
        # Play-outs follow the networks' regrets as they are.
        unrectified = rectified.strategies.policy(rectified.value_networks).probabilities(infosets)
        torch.testing.assert_close(policy.probabilities(infosets), unrectified)
        return (infosets % 13 - 6).double() * 100

    monkeypatch.setattr(Beliefs, "played_out", made_up)
    traversals = rectified.engine.external_sampling(Uniform(game), 0, 100, torch.Generator().manual_seed(0))
    infosets = traversals.advantages.infosets
    found = rectified.current_policy().probabilities(infosets)
    late = (game.tree.round[game.locate(infosets)[0]] > 0).nonzero().flatten()
    assert set(torch.cat(played).tolist()) == set(infosets[late].tolist())
    features, legal = rectified.strategies.inputs(infosets[late])
    output = rectified.value_networks[0](features, legal).detach()
    beta = rectification_weight(5, "printed")
    shift = beta * (output[:, -1] - (infosets[late] % 13 - 6))
    expected = regret_matching(output[:, :-1] + shift[:, None], legal, "uniform")
    torch.testing.assert_close(found[late], expected, rtol=1e-4, atol=1e-5)
    plain = rectified.strategies.policy(rectified.value_networks).probabilities(infosets)
    torch.testing.assert_close(plain[late], regret_matching(output[:, :-1], legal, "uniform"), rtol=1e-4, atol=1e-5)
    assert (found[late] - plain[late]).abs().max() > 0.1
    early = (game.tree.round[game.locate(infosets)[0]] == 0).nonzero().flatten()
    torch.testing.assert_close(found[early], plain[early])


def test_divergence_is_from_the_mean_of_the_last_policies(rectified):
    assert [len(recent) for recent in rectified.recent] == [2, 2]
    mine = rectified.game.player_slice[0]
    draw = torch.Generator().manual_seed(0)
    sampled = rectified.engine.external_sampling(Uniform(rectified.game), 1, 50, draw).opponent_strategies.infosets
    infosets = sampled[rectified.game.tree.round[rectified.game.locate(sampled)[0]] > 0][:20] - mine.start
    plain = Minibatch(infosets, torch.ones(20, 1), torch.zeros(20, 4), torch.zeros(()))
    batch: Any = asked(rectified).with_inputs(plain, 0)
    network = rectified.architecture("average")
    found = asked(rectified).mean_of(network, list(rectified.recent[0]), 0)(batch)
    outputs = []
    for flat in rectified.recent[0]:
        torch.nn.utils.vector_to_parameters(flat, network.parameters())
        outputs.append(network(*batch.inputs).detach())
    torch.testing.assert_close(found, (outputs[0] + outputs[1]) / 2)
    torch.testing.assert_close(outputs[1], rectified.average_networks[0](*batch.inputs).detach())


def test_its_policy_networks_are_what_is_played(rectified):
    game, seats = rectified.game, seats_of(rectified, ReadoutConfig("average_network"))
    draw = torch.Generator().manual_seed(0)
    infosets = rectified.engine.external_sampling(Uniform(game), 0, 50, draw).advantages.infosets
    late = game.tree.round[game.locate(infosets)[0]] > 0
    expected = rectified.average_networks[0](*rectified.strategies.inputs(infosets)).detach()
    found = seats[0].probabilities(infosets)
    torch.testing.assert_close(found[late], expected[late])
    opening = rectified.strategies.openings[0].average().float()
    torch.testing.assert_close(found[~late], opening[infosets[~late] - game.player_slice[0].start])
    match = play_match(game, seats, Uniform(game), 200, rectified.draws("match"))
    assert match.standard_error > 0


@pytest.mark.exhaustive
def test_resuming_equals_never_stopping(tmp_path):
    def make() -> D2CFR:
        return d2cfr(small_game(), kl_weight=0.5, policy_every=1, traversals=60, **PLAYED)

    straight, resumed = straight_and_resumed(make, 4, 2, tmp_path)
    for player in range(2):
        for a, b in zip(straight.recent[player], resumed.recent[player], strict=True):
            assert torch.equal(a, b)
        openings = [model.strategies.openings[player] for model in (straight, resumed)]
        assert torch.equal(openings[0].regrets, openings[1].regrets)
        assert torch.equal(openings[0].sums, openings[1].sums)
    for a, b in zip(straight.value_networks.parameters(), resumed.value_networks.parameters(), strict=True):
        assert torch.equal(a, b)
    assert asked(straight).fitted == asked(resumed).fitted == [4, 4]
    assert straight.policy_loss == resumed.policy_loss


def test_what_it_stored_is_what_is_played(rectified, tmp_path):
    folder = SnapshotFolder(tmp_path)
    folder.write(rectified.snapshot())
    assert folder.read().history == {}
    draw = torch.Generator().manual_seed(0)
    infosets = rectified.engine.external_sampling(Uniform(rectified.game), 0, 50, draw).advantages.infosets
    readout = ReadoutConfig("average_network")
    stored, now = (seats_of(rectified, readout, s)[0].probabilities(infosets) for s in (folder.read(), None))
    assert torch.equal(stored, now)


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
        plan(["game=hnlh", "algorithm=d2cfr", *overrides], multirun=False)
    assert sentence in str(caught.value)
