"""A check of a pickle before torch reads it, by its opcodes alone.

`torch.load` with weights_only makes no objects but tensors and containers. It still hashes what is a key of a
dictionary, and a tuple of tuples of tuples takes any time to hash, or more stack than there is, from a few bytes.
"""

import pickletools
import zipfile
from typing import Any

MAX_PICKLE_BYTES = 2**24  # of a training state without its tensors: enough for the settings of 300 languages
MAX_DEPTH = 10  # of tuples in tuples
MAX_SHARED_ITEMS = 10  # of a tuple that is used in several places

_MARK = object()
# Opcodes, and how many values each takes from the stack; -1 for all down to the mark
_TAKEN = {
    **dict.fromkeys(("PROTO", "FRAME", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"), 0),
    **dict.fromkeys(("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), 0),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING", "GLOBAL", "MARK"), 0),
    **dict.fromkeys(("EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "BINGET", "LONG_BINGET"), 0),
    **{"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "TUPLE": -1, "APPENDS": -1, "SETITEMS": -1},
    **{"APPEND": 1, "SETITEM": 2, "REDUCE": 2, "NEWOBJ": 2, "BUILD": 1, "BINPERSID": 1},
}
_PUSHES_NOTHING = ("PROTO", "FRAME", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP")
_CHANGES_WHAT_IS_BELOW = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD")


def check_pickle(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    """Raise ValueError for a pickle that no training state has: too large, of other opcodes, or of nested tuples.

    Raises IndexError or KeyError for what is no pickle.
    """
    if part.file_size > MAX_PICKLE_BYTES:
        raise ValueError("it has too many objects")
    stack: list[Any] = []  # of each value, whether it is a tuple: its depth, and its number of items; (0, 0) if not
    memo: dict[int, tuple[int, int]] = {}
    for opcode, argument, _ in pickletools.genops(archive.read(part)):
        name = opcode.name
        if name not in _TAKEN:
            raise ValueError("it has objects that no state of Tapis has")
        n_taken = _TAKEN[name]
        taken = []
        while n_taken and not (n_taken < 0 and stack[-1] is _MARK):
            taken.append(stack.pop())
            n_taken = max(n_taken - 1, -1)
        if n_taken < 0:
            stack.pop()  # the mark

        if name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            depth, n_items = memo[int(argument or 0)]
            if depth > 1 or n_items > MAX_SHARED_ITEMS:
                raise ValueError("it has tuples within tuples, as no state of Tapis has")
            stack.append((depth, n_items))
        elif name.startswith("TUPLE"):
            depth = 1 + max((depth for depth, _ in taken), default=0)
            if depth > MAX_DEPTH:
                raise ValueError("it has tuples within tuples, as no state of Tapis has")
            stack.append((depth, len(taken)))
        elif name not in (*_PUSHES_NOTHING, *_CHANGES_WHAT_IS_BELOW):
            stack.append((0, 0))
