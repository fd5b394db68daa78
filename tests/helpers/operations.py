"""What torch does within a block: the names of its operations, and the largest tensor that they gave."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Recorded(TorchDispatchMode):
    """Lists all operations.

    Attributes:
        names: of the operations, in order.
        largest: size in elements of the largest tensor among the results.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        self.names.append(str(function))
        result = function(*arguments, **(keywords or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result
