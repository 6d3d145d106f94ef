"""Calls of operators as the golden files hold them: operands, results and their JSON."""

import json
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
FLOATS = ["FLOAT", "FLOAT16", "BFLOAT16"]
REALS = [*FLOATS, "DOUBLE"]
WHOLE = ["INT8", "INT32", "INT64", "UINT8"]
TYPES = {
    "FLOAT": torch.float32,
    "FLOAT16": torch.float16,
    "BFLOAT16": torch.bfloat16,
    "DOUBLE": torch.float64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "UINT8": torch.uint8,
    "BOOL": torch.bool,
}
SHAPES = [[2, 3], [], [0, 3], [2, 1, 4]]
PAIRS = [([2, 3], [2, 3]), ([3, 1, 2], [2, 2]), ([], [4]), ([0, 2], [1, 2])]


# Decimal digits that tell any two numbers of a type apart.
DIGITS = {"FLOAT": 9, "FLOAT16": 5, "BFLOAT16": 4}


def number(value, dtype):
    """A value as JSON holds it."""
    if not isinstance(value, float):
        return int(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    return float(f"{value:.{DIGITS[dtype]}g}") if dtype in DIGITS else value


def flat(tensor, dtype):
    return [number(value, dtype) for value in tensor.reshape(-1).tolist()]


def described(tensor, dtype):
    return {"type": dtype, "dims": list(tensor.shape), "values": flat(tensor, dtype)}


def given(tensor, dtype):
    return {"in": described(tensor, dtype)}


def made(tensor, dtype):
    """An output, rounded to its type."""
    return {"out": described(tensor.to(TYPES[dtype]), dtype)}


def exact(tensor):
    """What the operands are computed in."""
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def drawn(seed, dims, dtype, low=-3.0, high=3.0):
    """Operands between two bounds as their type holds them, the same for the same seed."""
    random = torch.Generator().manual_seed(seed)
    values = low + (high - low) * torch.rand(dims, generator=random, dtype=torch.float64)
    if dtype == "BOOL":
        return values > (low + high) / 2
    if not TYPES[dtype].is_floating_point:
        values = values.round().abs() if dtype == "UINT8" else values.round()
    return values.to(TYPES[dtype])


def special(dtype):
    """Zeros of both signs, infinities, not a number, and ties."""
    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 0.5, -0.5, 1.5, 2.5, 1.0, -1.0]
    return torch.tensor(values, dtype=torch.float64).to(TYPES[dtype])


class Cases(list):
    """The calls of one file."""

    def add(self, name, *arguments):
        self.append({"call": name, "arguments": list(arguments)})

    def unary(self, name, function, types=REALS, low=-3.0, high=3.0, out=None, scalars=(), with_special=True):
        """A function of one tensor, and in place where the type allows."""
        numbers = [scalar["scalar"] for scalar in scalars]
        for dtype in types:
            is_real = function(exact(drawn(0, [1], dtype)), *numbers).is_floating_point()
            target = out or ("FLOAT" if is_real and dtype not in REALS else dtype)
            shapes = SHAPES if dtype == types[0] else SHAPES[:1]
            operands = [drawn(1, dims, dtype, low, high) for dims in shapes]
            if dtype in ["FLOAT", "FLOAT16"] and with_special:
                operands.append(special(dtype))
            for x in operands:
                self.add(name, given(x, dtype), *scalars, made(function(exact(x), *numbers), target))

    def binary(self, name, function, types=REALS, low=-3.0, high=3.0, out=None, scalars=(), nonzero=False):
        numbers = [scalar["scalar"] for scalar in scalars]
        for dtype in types:
            for a, b in PAIRS if dtype == types[0] else PAIRS[1:2]:
                x, y = drawn(2, a, dtype, low, high), drawn(3, b, dtype, low, high)
                if nonzero:
                    y = torch.where(y == 0, torch.ones_like(y), y)
                self.add(name, given(x, dtype), given(y, dtype), *scalars, made(function(exact(x), exact(y), *numbers), out or dtype))

    def write(self, file):
        lines = [json.dumps(case, separators=(",", ":")) for case in self]
        (HERE / file).write_text("\n".join(lines) + "\n")


def scalar(value, dtype="FLOAT"):
    return {"scalar": value, "type": dtype}
