"""Suggests the option, file, key, value or command that a misspelt word most likely means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return the choice that a misspelt or cut word most likely means, or ""."""
    lower = {choice.lower(): choice for choice in choices}
    wanted = word.strip().lower()
    if close := difflib.get_close_matches(wanted, lower, n=1, cutoff=0.6):
        return lower[close[0]]
    begins = [choice for text, choice in lower.items() if wanted and text.startswith(wanted)]
    return begins[0] if len(begins) == 1 else ""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return a fix that suggests the nearest choice in quotes, or ""."""
    meant = nearest(word, choices)
    return meant and f'did you mean "{meant}"?'


def similar_file(path: Path) -> str:
    """Return a fix that suggests a file of a similar name and the same suffix, or ""."""
    try:
        stems = sorted(file.stem for file in path.parent.iterdir() if file.suffix == path.suffix)
    except OSError:
        return ""
    meant = nearest(path.stem, stems)
    return f"did you mean {path.with_name(meant + path.suffix)}?" if meant else ""
