"""The arch `native`: archs read from the topology of the GPU driver, in Linux's file format."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.manifest.archs import arch_of_version, native_archs
from qola_base.errors import ToolchainError

NODE = """\
cpu_cores_count {cpus}
simd_count {simds}
mem_banks_count 1
gfx_target_version {version}
vendor_id 4098
device_id 29857
"""


def topology(root: Path, *versions: int) -> Path:
    """Write a topology of one CPU and GPUs of the given versions."""
    for index, version in enumerate((0, *versions)):
        node = root / str(index)
        node.mkdir(parents=True)
        text = NODE.format(cpus=0 if version else 96, simds=304 if version else 0, version=version)
        (node / "properties").write_text(text)
    return root


@pytest.mark.parametrize(
    ("version", "arch"),
    [
        (90402, "gfx942"),
        (90500, "gfx950"),
        (90010, "gfx90a"),
        (110001, "gfx1101"),
        (120500, "gfx1250"),
    ],
)
def test_version_becomes_llvm_name(version: int, arch: str) -> None:
    """Prevents: gfx9010 for gfx90a, whose stepping LLVM writes in hexadecimal."""
    assert arch_of_version(version) == arch


def test_archs_of_the_machine(tmp_path: Path) -> None:
    """Prevents: an arch for the CPU's node, duplicate archs, or an unstable order."""
    nodes = topology(tmp_path, 90500, *[90402] * 8, 90500)
    assert native_archs(nodes) == ("gfx942", "gfx950")


def test_node_without_the_property(tmp_path: Path) -> None:
    """Prevents: a traceback with kernels before 5.17, whose nodes have no version."""
    nodes = topology(tmp_path, 90402)
    (nodes / "0" / "properties").write_text("cpu_cores_count 96\n")
    assert native_archs(nodes) == ("gfx942",)


@pytest.mark.parametrize("gpuless", ["no driver", "only a CPU"])
def test_missing_gpu_error_suggests_a_fix(tmp_path: Path, gpuless: str) -> None:
    """Prevents: a build without archs, or a traceback, on a machine without a GPU."""
    nodes = topology(tmp_path) if gpuless == "only a CPU" else tmp_path / "absent"
    with pytest.raises(ToolchainError) as caught:
        native_archs(nodes)
    assert caught.value.exit_code == 5
    (finding,) = caught.value.findings
    assert finding.place == nodes.as_posix()
    assert "--arch gfx950" in finding.fix


def make_unreadable(file: Path) -> None:
    """Replace a file by a directory, which even root cannot read as a file."""
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("node", ["0", "1", "3"])
def test_unreadable_node_is_skipped(tmp_path: Path, node: str) -> None:
    """Prevents: no archs in a container that cannot read the nodes of GPUs of other containers."""
    nodes = topology(tmp_path, 90402, 90402, 90402)
    make_unreadable(nodes / node / "properties")
    assert native_archs(nodes) == ("gfx942",)


def test_no_readable_gpu(tmp_path: Path) -> None:
    """Prevents: a traceback, or an error without a reason, if no GPU's node can be read."""
    nodes = topology(tmp_path, 90402)
    make_unreadable(nodes / "1/properties")
    expected = r"found +2 nodes, no GPU among them; .*1/properties: Is a directory"
    with pytest.raises(ToolchainError, match=expected):
        native_archs(nodes)
