"""Tests of torch_npu on the drop-in libraries. Without the wheels or the libraries, all tests are skipped with the reason.

`cargo xtask emulator --out npu && LD_LIBRARY_PATH=npu python -m pytest tests/torch`; docs/TORCH.md lists the wheels.
"""

import ctypes
import importlib.util

import pytest


def _missing():
    for package in ("torch", "torch_npu", "transformers"):
        if importlib.util.find_spec(package) is None:
            return f"the package {package} is not installed (docs/TORCH.md)"
    try:
        library = ctypes.CDLL("libascendcl.so")
    except OSError as error:
        return f"LD_LIBRARY_PATH does not name the folder of `cargo xtask emulator --out DIR`: {error}"
    if not hasattr(library, "ascend_emulator_register_kernel"):
        return "LD_LIBRARY_PATH leads to the libraries of a toolkit, not to the emulator's"
    return None


MISSING = _missing()


def pytest_collection_modifyitems(items):
    if MISSING:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=MISSING))
