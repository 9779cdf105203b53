"""Properties of archs, which Python and the fake HIP runtime both define."""

from __future__ import annotations

import re
from pathlib import Path

from qola_base.arch_facts import ARCHS

_ARCH = re.compile(
    r'Arch\{"(gfx\w+)", "[^"]*", (0x\w+), \d+, (\d+) << 10, \d+ \* kGiB, \d+, \d+, (\d+)\}'
)


def test_fake_hip_runtime_has_equal_facts(repo_root: Path) -> None:
    """Prevents: a device with another LDS size, wave size or ELF machine than the emulator's."""
    text = (repo_root / "gfxemu/fake_hip/settings.cpp").read_text(encoding="utf-8")
    found = {
        name: (int(machine, 16), int(lds) << 10, int(lanes))
        for name, machine, lds, lanes in _ARCH.findall(text)
    }
    assert found == {
        name: (facts.machine, facts.lds_bytes, facts.lanes) for name, facts in ARCHS.items()
    }
