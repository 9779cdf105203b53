"""What can go wrong in bench/run."""

from __future__ import annotations

from typing import ClassVar

from qola.errors import QolaError


class BenchError(QolaError):
    """A step of the benchmark failed, or what it would compare is not the same on both sides."""

    exit_code: ClassVar[int] = 1
    default_title: ClassVar[str] = "bench/run cannot go on"
