"""Iterations of figure 1's training, in the code that Python finds: `python -P iterations.py`.

It answers each line of its input, a number of iterations, with the seconds that they took and the loss of the last one.
`repro.bench.against` starts it with its own code and with that of another commit, so it asks for nothing that is new.
"""

from __future__ import annotations

import sys
import time

import torch
from threadpoolctl import threadpool_limits

from repro.games import load
from repro.plans.planning import plan


def main() -> None:
    """Answer until the input ends."""
    torch.set_num_threads(1)
    # Before the limit: the code of another commit may load a BLAS here, and a limit holds for those that are loaded.
    config = plan(["experiment=figure1"], multirun=False).runs[0].config
    with threadpool_limits(1):
        model = config.algorithm.build(load("leduc"), config)
        for line in sys.stdin:
            start = time.perf_counter()
            for _ in range(int(line)):
                model.iteration += 1
                measured = model.advance()
            print(time.perf_counter() - start, measured["loss/value"].hex(), flush=True)


if __name__ == "__main__":
    main()
