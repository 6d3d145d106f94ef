"""Lists the operators of a program that the emulator refuses.

In `with Refused() as refused:`, each PyTorch operator that fails on the card is computed on the CPU instead. One run therefore finds
all of them. This is for diagnosis only: nothing else in this folder falls back.

`python refused.py [model …]` runs the models of models.py and prints a table, sorted by the number of tasks (forward pass, greedy
generation, training) that need the operator.
"""

import collections
import re
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


class Refused(TorchDispatchMode):
    """Computes operators that fail on the card on the CPU, and counts them."""

    def __init__(self):
        super().__init__()
        # Number of failures by PyTorch operator and reason.
        self.found = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            reason = _reason(str(error))
            self.found[str(func), reason] += 1
        return _on_cpu(func, args, kwargs)


def _reason(text):
    """Returns the emulator's message in a traceback of torch_npu, or the first line."""
    for line in text.splitlines():
        match = re.search(r"(aclnn\w+|aclop\w+|aclrt\w+|Hccl\w+): .*", line)
        if match:
            return re.sub(r"0x[0-9a-f]+", "ADDRESS", match.group(0))
    return text.splitlines()[0]


def _matmul_backward(grad, one, other, mask):
    # The gradient of a broadcast factor is summed.
    first = (grad @ other.mT).sum_to_size(one.shape) if mask[0] else None
    return first, (one.mT @ grad).sum_to_size(other.shape) if mask[1] else None


# Definitions of operators that PyTorch has only for cards.
ONLY_ON_CARDS = {
    "aten.matmul_backward.default": _matmul_backward,
    "npu._npu_dtype_cast.default": lambda value, dtype: value.to(dtype),
    "npu.npu_dtype_cast_backward.default": lambda value, dtype: value.to(dtype),
    "npu._npu_dtype_cast_backward.default": lambda value, dtype: value.to(dtype),
}


class _Copies:
    """CPU copies of card tensors, byte for byte. Views of one storage stay views of one copy."""

    def __init__(self):
        # By address of a storage on the card: its bytes there, and the copy.
        self.storages = {}
        # By identity of a copy: the copy and its original. Both stay alive, so identities are unique.
        self.tensors = {}

    def down(self, value):
        if isinstance(value, torch.device) and value.type == "npu":
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor) or value.device.type != "npu":
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in self.storages:
            there = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage, 0, (storage.nbytes(),))
            self.storages[storage.data_ptr()] = (there, there.cpu())
        bytes_here = self.storages[storage.data_ptr()][1].untyped_storage()
        copy = torch.empty(0, dtype=value.dtype).set_(bytes_here, value.storage_offset(), value.size(), value.stride())
        self.tensors[id(copy)] = (copy, value)
        return copy

    def up(self, value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in self.tensors:
            return self.tensors[id(value)][1]
        return value.contiguous().to("npu")

    def write_back(self):
        for there, here in self.storages.values():
            there.copy_(here)


def _on_cpu(func, args, kwargs):
    """Runs the operator on copies, and moves results and written tensors to the card."""
    copies = _Copies()
    low_args, low_kwargs = tree_map(copies.down, (args, kwargs))
    result = ONLY_ON_CARDS.get(str(func), func)(*low_args, **low_kwargs)
    if func._schema.is_mutable:
        copies.write_back()
    return tree_map(copies.up, result)


def main(names):
    import torch_npu  # noqa: F401
    from models import MODELS, TASKS, VISION

    needed = {}
    for name in names or MODELS:
        for task, run in TASKS.items():
            if task == "greedy" and (name == "bert" or name in VISION):
                continue
            with Refused() as refused:
                try:
                    run(name, "npu")
                    end = "to its end"
                except Exception as error:  # noqa: BLE001 - the table says how far each came
                    end = f"until {type(error).__name__}: {str(error).splitlines()[0]}"
            print(f"# {name} {task}: {end}, {len(refused.found)} refusals", flush=True)
            for (operator, reason), count in refused.found.items():
                needed.setdefault((operator, reason), {})[f"{name} {task}"] = count
    rows = sorted(needed.items(), key=lambda row: (-len(row[1]), row[0]))
    print("runs\tcalls\toperator\treason")
    for (operator, reason), runs in rows:
        print(f"{len(runs)}\t{sum(runs.values())}\t{operator}\t{reason}\t{', '.join(runs)}")


if __name__ == "__main__":
    main(sys.argv[1:])
