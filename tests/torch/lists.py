"""A rank that multiplies lists of tensors by Python numbers, which torch_npu passes as doubles."""

import torch
import torch_npu  # noqa: F401


def main():
    lists, factors = [torch.full([3], 2.0), torch.full([2, 2], 4.0)], [0.5, 0.25]
    found = torch._foreach_mul([value.npu() for value in lists], factors)
    assert [value.cpu().tolist() for value in found] == [(value * factor).tolist() for value, factor in zip(lists, factors)]
    print("rank 0 of 1 agrees", flush=True)


if __name__ == "__main__":
    main()
