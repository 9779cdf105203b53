"""A torch module with different sources per arch, on devices of several archs."""

from __future__ import annotations

import os
from pathlib import Path

from gfxemu.fake_hip import read_log
from tests.torch.torch_programs import exported_symbols, link, run

LIBRARY, NAMES = sorted(
    (Path(name).resolve() for name in os.environ["QOLA_TEST_LIBRARIES"].split()),
    key=lambda path: path.suffix != ".so",
)
#: Imports the module in a forked process per device, and by its other name on the first one;
#: importing PyTorch takes seconds.
PROGRAM = """\
import importlib, os, torch
devices = [("per_arch", arch) for arch in ("gfx942", "gfx950", "gfx90a", "")]
for name, arch in [*devices, ("per_arch_tile", "gfx942")]:
    if not os.fork():
        failing = "" if arch else "hipGetDevice=100"
        os.environ.update(FAKE_HIP_ARCH=arch or "gfx942", FAKE_HIP_FAIL=failing)
        try:
            per_arch = importlib.import_module(name)
            per_arch.launch()
            per_arch.fail()
        except ImportError as error:
            print(error, flush=True)
        except RuntimeError as error:
            print(per_arch.tile(), error, flush=True)
        os._exit(0)
    os.wait()
"""


def test_sources_of_the_device_arch_run(tmp_path: Path) -> None:
    """Prevents: a module runs code of another arch, or its error does not name the arch."""
    log = tmp_path / "launches"
    link(tmp_path, [LIBRARY, *NAMES.iterdir()])
    result = run(tmp_path, PROGRAM, FAKE_HIP_LOG=str(log))
    assert result.stdout.splitlines() == [
        "64 tile 64",
        "128 tile 128",
        "per_arch was built for gfx942, gfx950, and this device is gfx90a: add "
        '"gfx90a" to [build].architectures of the manifest, and build it again',
        "per_arch has other kernels for each arch, and the device's is unknown: "
        "hipGetDevice: hipErrorNoDevice",
        "64 tile 64",
    ], result.stderr
    launches = [(launch.arch, launch.block[0]) for launch in read_log(log)]
    assert launches == [("gfx942", 64), ("gfx950", 128), ("gfx942", 64)]


def test_aiter_finds_both_archs() -> None:
    """Prevents: AITER compiles a module again because its scan finds only one arch."""
    data = LIBRARY.read_bytes()
    assert all(f"amdhsa--{arch}".encode() in data for arch in ("gfx942", "gfx950"))


def test_module_exports_one_symbol() -> None:
    """Prevents: functions of an arch override functions of another module."""
    assert exported_symbols(LIBRARY) == ["PyInit_per_arch"]
