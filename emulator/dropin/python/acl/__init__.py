"""pyACL on the emulator: the functions of CANN's `acl` package, over the drop-in libraries two folders up.

A function takes addresses and handles as integers and returns what its C function writes, then its code: `context, ret =
acl.rt.create_context(0)`. `functions.txt` is the list; what is not in it is an AttributeError, what the emulator does not model
returns the code CANN has for that. `acl.util` stands at the end of this file.
"""

import ctypes
import pathlib
import re
import sys
import threading
import types

_HERE = pathlib.Path(__file__).resolve().parent
_LIBRARY = ctypes.CDLL(str(_HERE.parents[1] / "libascendcl.so"))

_TYPES = {
    "ptr": ctypes.c_void_p,
    "size": ctypes.c_size_t,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float": ctypes.c_float,
    "text": ctypes.c_char_p,
}
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_LINE = re.compile(r"(?P<name>[\w.]+)\s+(?P<symbol>\w+)\((?P<parameters>.*)\)(?: -> (?P<result>\w+))?")

# What C still holds of Python: callbacks that have not run, by a number that C is given in the place of their argument.
_pending = {}
_pending_lock = threading.Lock()
_next_pending = 1


@_CALLBACK
def _run_pending(number):
    with _pending_lock:
        function, argument = _pending.pop(number)
    function(argument)


def _hold(function, argument):
    global _next_pending
    with _pending_lock:
        number, _next_pending = _next_pending, _next_pending + 1
        _pending[number] = (function, argument)
    return number


def _value(c_object):
    """What Python is told: 0 for NULL, text for a C string."""
    value = c_object.value if isinstance(c_object, ctypes._SimpleCData) else c_object
    return value.decode() if isinstance(value, bytes) else value or 0


def _bind(name, symbol, parameters, result):
    """A Python function for one line of the list."""
    parameters = [tuple(part.split()) for part in parameters.split(",") if part.strip()]
    wanted = [text for _, text in parameters if not text.startswith("*")]
    least = sum(not text.endswith("?") for text in wanted)
    function = getattr(_LIBRARY, symbol)
    function.restype = _TYPES[result] if result else ctypes.c_int32
    says = ", ".join(wanted)

    def call(*given):
        if not least <= len(given) <= len(wanted):
            raise TypeError(f"acl.{name}({says}) takes {len(wanted)} arguments, {len(given)} were given")
        given, passed, written, held = iter(given), [], [], None
        for kind, text in parameters:
            if text.startswith("*"):
                written.append(_TYPES[kind]())
                passed.append(ctypes.byref(written[-1]))
                continue
            value = next(given, None)
            try:
                if kind == "callback":
                    if not callable(value):
                        raise TypeError("not a function")
                    held = value
                    passed.append(_run_pending)
                elif kind == "object":
                    held = _hold(held, value)
                    passed.append(ctypes.c_void_p(held))
                elif kind == "int64[]":
                    passed += [ctypes.c_int32(len(value)), (ctypes.c_int64 * len(value))(*value)]
                else:
                    passed.append(_TYPES[kind](value.encode() if isinstance(value, str) else value))
            except TypeError as error:
                raise TypeError(f"acl.{name}({says}): {text.strip('?')} is {value!r}, expected {kind}") from error
        answer = function(*passed)
        if isinstance(held, int) and answer != 0:
            with _pending_lock:
                _pending.pop(held, None)
        if result:
            # NULL is no text; of an address it is 0.
            return "" if answer is None and result == "text" else _value(answer)
        return tuple([_value(one) for one in written] + [answer]) if written else answer

    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.__doc__ = f"acl.{name}({says}), by {symbol}"
    return call


def _absent(module):
    def getattribute(name):
        raise AttributeError(f"{module}.{name} is not in the emulator's pyACL; its list is {_HERE / 'functions.txt'}")

    return getattribute


def _module(name):
    module = sys.modules[__name__] if not name else types.ModuleType(f"acl.{name}")
    module.__getattr__ = _absent(module.__name__)
    sys.modules[module.__name__] = module
    return module


_modules = {name: _module(name) for name in ("", "rt", "mdl", "op", "util")}
rt, mdl, op, util = (_modules[name] for name in ("rt", "mdl", "op", "util"))
for _line in (_HERE / "functions.txt").read_text().splitlines():
    if _line and not _line.startswith("#"):
        _found = _LINE.fullmatch(_line)
        _place, _, _name = _found["name"].rpartition(".")
        setattr(_modules[_place], _name, _bind(**_found.groupdict()))


# acl.util: what has no C function.


def _bytes_to_ptr(data):
    """The address of what a bytes object holds; the object has to live as long as the address is used."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value


def _numpy_to_ptr(array):
    """The address of an array's elements, which have to lie one behind the other."""
    if not array.flags["C_CONTIGUOUS"]:
        raise ValueError("the array is not contiguous; numpy.ascontiguousarray makes one that is")
    return array.ctypes.data


# Numbers of numpy's C API, which pyACL takes types by.
_NUMPY_TYPES = {
    0: "bool", 1: "int8", 2: "uint8", 3: "int16", 4: "uint16", 5: "int32", 6: "uint32", 7: "int64", 8: "uint64", 9: "int64",
    10: "uint64", 11: "float32", 12: "float64", 23: "float16",
}  # fmt: skip


def _ptr_to_numpy(ptr, shape, data_type):
    """An array over the memory at an address, without a copy."""
    import math

    import numpy

    if data_type not in _NUMPY_TYPES:
        raise ValueError(f"acl.util.ptr_to_numpy: {data_type} is no known type of numpy's C API")
    kind = numpy.dtype(_NUMPY_TYPES[data_type])
    memory = (ctypes.c_char * (math.prod(shape) * kind.itemsize)).from_address(ptr)
    return numpy.frombuffer(memory, dtype=kind).reshape(shape)


def _start_thread(function, arguments):
    """Runs `function(arguments)` in a thread; gives the id that acl.rt.subscribe_report takes."""
    thread = threading.Thread(target=function, args=(arguments,), daemon=True)
    thread.start()
    _threads[thread.ident] = thread
    return thread.ident, 0


def _stop_thread(thread_id):
    """Waits for the end of a thread, whose function has to be told to end beforehand."""
    if thread_id not in _threads:
        return 100000
    _threads.pop(thread_id).join()
    return 0


_threads = {}
util.bytes_to_ptr = _bytes_to_ptr
util.ptr_to_bytes = ctypes.string_at
util.numpy_to_ptr = util.numpy_contiguous_to_ptr = _numpy_to_ptr
util.ptr_to_numpy = _ptr_to_numpy
util.start_thread = _start_thread
util.stop_thread = _stop_thread
