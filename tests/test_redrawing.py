"""What is published is what its data give: every picture is drawn again, and every verdict judged again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib import image

from repro.figures.drawing import draw_again
from repro.figures.targets import ROOT, Options

PUBLISHED = sorted((ROOT / "paper_figures" / "results").iterdir())
ALIKE = 3e-3
"""Mean difference of pixels, of 1, that another version of a font makes; other data make several times as much."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "published",
    [
        pytest.param(folder, id=folder.name, marks=[] if folder.name == "figure1-laptop" else pytest.mark.exhaustive)
        for folder in PUBLISHED
    ],
)
def test_pictures_and_verdicts_are_what_their_data_give(published, tmp_path):
    target, _, scale = published.name.rpartition("-")
    options = Options(scale, tmp_path, jobs=1, device="cpu", force=False)
    draw_again(target, options)
    folders = (options.folder(target), published)
    ours, theirs = (image.imread(folder / f"{target}.png") for folder in folders)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).mean() < ALIKE
    judged, before = (json.loads((folder / "claims.json").read_text()) for folder in folders)
    assert [(c["id"], c["verdict"]) for c in judged] == [(c["id"], c["verdict"]) for c in before]
    np.testing.assert_allclose(_estimates(judged), _estimates(before), rtol=1e-6)


def _estimates(claims: list[dict]) -> np.ndarray:
    """`[claims, 3]` mean and interval, NaN where there is none."""
    measured = [claim["measured"] or {} for claim in claims]
    return np.array([[each.get(end) for end in ("mean", "low", "high")] for each in measured], float)
