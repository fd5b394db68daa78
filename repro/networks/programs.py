"""Networks as tables of layers, for the compiled steps of `repro.networks.steps`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.networks import steps
from repro.networks.modules import (
    Dueling,
    MaskedLinear,
    MaskedSoftmax,
    Network,
    Normalise,
    Residual,
    StateAndAdvantages,
)
from repro.networks.optimizers import FlatAdam


class NotCompilableError(Exception):
    """There is no compiled form of a network, whose steps are then taken one by one."""


Form = TypeVar("Form")


def if_compilable(make: Callable[..., Form], *arguments: Any) -> Form | None:
    """What `make` makes of its arguments; None if there is no compiled form of the network among them."""
    try:
        return make(*arguments)
    except NotCompilableError:
        return None


@dataclass
class Program:
    """A network whose parameters are held by a `FlatAdam`.

    Attributes:
        layers: rows of the table that `steps.take_steps` takes.
        head: its kind, and the layers that it reads.
        state_scale: what an error in a state's value counts.
    """

    layers: list[list[int]] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    state_scale: float = 1.0
    _parameters: int = 0

    @property
    def parameters(self) -> int:
        """How many parameters the layers so far have, those before them included."""
        return self._parameters

    def begin(self, parameters: int) -> None:
        """Count parameters from here on."""
        self._parameters = parameters

    def given(self, width: int, parameters: int) -> int:
        """Add a layer whose outputs the caller computes, and the parameters that come before those of the next."""
        place = self._place()
        self.layers.append([steps.GIVEN, -1, 0, width, 0, place, 1, 0])
        self._parameters = parameters
        return len(self.layers) - 1

    def _place(self) -> int:
        return sum(self.layers[-1][i] for i in (steps.PLACE, steps.OUTPUTS)) if self.layers else 0

    def sequence(self, modules: nn.Sequential, source: int) -> int:
        """Add layers that follow one another; returns the last one's number.

        Raises:
            NotCompilableError: there is no compiled form of one of them.
        """
        for module, following in pairwise([*modules, None]):
            if isinstance(module, nn.ReLU) and source >= 0 and self.layers[source][steps.RELU]:
                continue
            source = self._layer(module, source, isinstance(following, nn.ReLU))
        return source

    def _layer(self, module: Any, source: int, relu: bool) -> int:
        place = self._place()
        linear = module.linear if type(module) is Residual else module
        if type(linear) is nn.Linear and linear.bias is not None:
            kind = steps.RESIDUAL if type(module) is Residual else steps.LINEAR
            row = [kind, source, linear.in_features, linear.out_features, self._parameters, place, int(relu), 0]
            self._parameters += linear.weight.numel() + linear.bias.numel()
        elif type(module) is Normalise and source >= 0 and not relu:
            width = self.layers[source][steps.OUTPUTS]
            row = [steps.NORMALISE, source, width, width, 0, place, 0, 0]
        else:
            raise NotCompilableError(f"no compiled form of {type(module).__name__} here")
        self.layers.append(row)
        return len(self.layers) - 1


def program_of(network: nn.Module) -> Program:
    """The table of a network, its parameters in their own order.

    Raises:
        NotCompilableError: there is no compiled form of it.
    """
    if not isinstance(network, Network):
        raise NotCompilableError(f"no compiled form of {type(network).__name__}")
    program, head = Program(), network.head
    trunk = program.sequence(network.body, -1)
    if type(head) in (MaskedLinear, MaskedSoftmax):
        kind = steps.MASKED_LINEAR if type(head) is MaskedLinear else steps.MASKED_SOFTMAX
        program.head = [kind, trunk, trunk]
    elif type(head) is Dueling:
        program.head = [steps.DUELING, *_branches(program, head.advantage, head.value, trunk)]
    elif type(head) is StateAndAdvantages:
        program.head = [steps.STATE_AND_ADVANTAGES, *_branches(program, head.action, head.state, trunk)]
        program.state_scale = head.state_scale
    else:
        raise NotCompilableError(f"no compiled form of the head {type(head).__name__}")
    return program


def _branches(program: Program, first: nn.Sequential, second: nn.Sequential, trunk: int) -> tuple[int, int]:
    begin = len(program.layers)
    last = program.sequence(first, trunk)
    # Backwards, the second branch comes first.
    program.layers[begin][steps.SHARES] = 1
    return last, program.sequence(second, trunk)


def compiled_focus(focus: float | None, head: int) -> np.float32:
    """A focus as compiled loops take it.

    Raises:
        ValueError: there is one, and the head's outputs are not all advantages.
    """
    if focus is not None and head not in (steps.MASKED_LINEAR, steps.DUELING):
        raise ValueError("errors count less below zero only where all outputs are advantages")
    return np.float32(np.inf if focus is None else focus)


class CompiledSteps:
    """SGD steps of a network on all rows of a table at once.

    Args:
        network, optimizer: the optimiser holds the network's parameters.
        features, legal: `[rows, ...]`, the table.
        focus: as of `repro.networks.losses.importance`; None: all errors count the same.

    Raises:
        NotCompilableError: there is no compiled form of the network.
    """

    def __init__(
        self, network: nn.Module, optimizer: FlatAdam, features: Tensor, legal: Tensor, focus: float | None = None
    ) -> None:
        self._program, self._optimizer = program_of(network), optimizer
        self._focus = compiled_focus(focus, self._program.head[0])
        self._inputs = np.ascontiguousarray(features.numpy()), np.ascontiguousarray(legal.numpy(), np.float32)

    def take(
        self, weight: Tensor, target: Tensor, rates: NDArray[np.float64], updates: int, infosets: Tensor | None = None
    ) -> NDArray[np.float64]:
        """The losses of steps with these learning rates, of which the first `updates` are taken.

        Args:
            weight, target: `[minibatches, rows]`, `[minibatches, rows, columns]`; the last is used for all steps left.
            infosets: None, for rows are those of the table.
        """
        assert infosets is None
        program, optimizer = self._program, self._optimizer
        state, losses = optimizer.state[optimizer.flat], np.empty(len(rates))
        features, legal = self._inputs
        steps.take_steps(
            np.array(program.layers), np.array(program.head), np.float32(program.state_scale), features, legal,
            *optimizer.arrays(), int(state["step"]), rates, float(optimizer.clip_norm),
            float(optimizer.averaging or 0), optimizer.matrices, optimizer.muon_over_adam, self._focus, weight.numpy(),
            target.numpy(), updates, losses,
        )  # fmt: skip
        state["step"] += min(updates, len(rates))
        return losses
