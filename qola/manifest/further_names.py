"""Checks the further names of modules, by which AITER's Python imports variants of a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qola.manifest.types import BwdVariant, FwdVariant

_DTYPES = ("fp16", "bf16", "fp8bf16", "fp8", "fp32")
_BIASES = {"nbias": "no", "bias": "bias", "alibi": "alibi"}
_FLAGS = ("mask", "lse", "dropout", "skip", "sink", "dbias", "deterministic")


def _words(name: str) -> Iterator[tuple[str, str | bool]]:
    """Yield each field that a name of AITER's states, with its value."""
    for word in name.split("_"):
        if word in _DTYPES:
            yield "dtype", word
        elif word in _BIASES:
            yield "bias", _BIASES[word]
        elif word.removeprefix("n") in _FLAGS:
            yield word.removeprefix("n"), not word.startswith("n")


def unserved(name: str, variants: Sequence[FwdVariant | BwdVariant]) -> str:
    """Return the fields of a name for which no variant selects kernels, "" if one selects all."""
    least: list[str] = []
    for variant in variants:
        lacking = [
            f"{field} = {str(value).lower() if isinstance(value, bool) else value}"
            for field, value in _words(name)
            if (values := getattr(variant, field, None)) is not None and value not in values
        ]
        if not lacking:
            return ""
        least = lacking if not least or len(lacking) < len(least) else least
    return ", ".join(least)
