"""What a library itself says that it would launch: the C function `<entry>_find`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from qola.aiter.attention import ENTRIES
from qola.attention import AttentionProblem
from qola.errors import Finding
from qola.verify.c_args import Answer, arguments
from qola.verify.repository import VerifyError

#: Statuses of qola_c.h: kernels are there, or none is; the problem is not one for C functions.
_OK, _NO_KERNEL, _UNSUPPORTED, _INVALID = 0, -1, -5, -6


@dataclass(frozen=True)
class Stage:
    """A kernel that a call would launch, by its symbol in a code object."""

    symbol: str
    assembly: bool


@dataclass(frozen=True)
class Found:
    """What a library answers.

    Attributes:
        stages: the first kernels that it would launch, in order.
        count: how many it would launch in all.
        error: why there are none.
    """

    stages: tuple[Stage, ...] = ()
    count: int = 0
    status: int = _OK
    error: str = ""

    @property
    def answers(self) -> bool:
        """Whether it names kernels, or says that there are none."""
        return self.status in (_OK, _NO_KERNEL)

    @property
    def refuses(self) -> bool:
        """Whether the C functions take no such problem, whatever the C++ ones do."""
        return self.status in (_UNSUPPORTED, _INVALID)


def find(library: ctypes.CDLL, namespace: str, problem: AttentionProblem, arch: str) -> Found:
    """Ask a library what it would launch for a problem on the device of this process.

    Raises:
        VerifyError: the library has no such function.
    """
    name = "_".join(word for word in ("qola", namespace, ENTRIES[problem.direction]) if word)
    given = arguments(problem, arch)
    answer = Answer(struct_size=ctypes.sizeof(Answer))
    status = _function(library, f"{name}_find")(ctypes.byref(given), ctypes.byref(answer))
    if status != _OK:
        last_error = _function(library, f"{name}_last_error")
        last_error.restype = ctypes.c_char_p
        return Found(status=status, error=last_error().decode())
    stages = tuple(
        Stage((one.symbol or one.kernel or b"").decode(), bool(one.assembly))
        for one in answer.stages[: answer.stage_count]
    )
    return Found(stages, answer.stage_count)


def _function(library: ctypes.CDLL, name: str) -> Any:
    try:
        return library[name]
    except AttributeError:
        words = "the library does not export it"
        raise VerifyError(Finding(name, words, "a library with C functions")) from None
