"""Ends a script with a message if its client is not installed."""

import importlib
import sys


def module(name):
    """Returns the module, or ends the script with exit code 0."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"skipped: {error}; install it to run this script")
        sys.exit(0)
