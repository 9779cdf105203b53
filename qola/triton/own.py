"""The kernels in Triton that are part of qola."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parent / "kernels"
PARTS = ("attention_parts.py",)
"""Files in the same directory that kernels import."""

FILES: Mapping[str, str] = {
    "attention_forward": "attention_forward.py",
    "attention_backward_delta": "attention_backward.py",
    "attention_backward_dkdv": "attention_backward.py",
    "attention_backward_dq": "attention_backward.py",
}
"""The file of each kernel."""
