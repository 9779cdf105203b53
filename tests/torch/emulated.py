"""The PyTorch that make_torch.py builds, with the emulator as its GPU."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from gfxemu.fake_hip import RUNTIME, Launch, read_log
from gfxemu.hip import Hip
from gfxemu.launch import Options

ARCH = "gfx950"


def loaded_runtime() -> Path:
    """Return PyTorch's copy of the fake HIP runtime; another copy is another device."""
    maps = Path("/proc/self/maps").read_text("utf-8").split()
    return next(Path(word) for word in maps if word.endswith(f"/{RUNTIME}"))


class Device(Hip):
    """The emulator, with a log of launches."""

    def __init__(self, log: Path, options: Options | None = None) -> None:
        self.log = log
        os.environ["FAKE_HIP_LOG"] = str(log)
        super().__init__(loaded_runtime(), ARCH, options)
        # This PyTorch lacks torch.cuda's initialization in Python; C++ initializes on first use.
        vars(torch.cuda)["_lazy_init"] = lambda: None

    def take_launches(self) -> list[Launch]:
        """Return the launches since the previous call; raise the error of a failed kernel."""
        self.raise_error()
        found = read_log(self.log)
        self.log.unlink(missing_ok=True)
        return found
