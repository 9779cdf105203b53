"""A problem for which kernels of three kinds exist: selection by the order of kinds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from gfxemu.fake_hip import FakeHip, read_log
from gfxemu.tests.sdk import compiler_of
from tests.bundle.project import bundle

HERE = Path(__file__).resolve().parent
BUNDLE = bundle("QOLA_TEST_ORDER")
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
CLANG, *PLACES = compiler_of(Path(os.environ["QOLA_TEST_CLANG"]).resolve().parents[1])
LIBRARIES = ("order_libmha_fwd.so", "order_triton.so")


def run_program(
    tmp_path: Path, *arguments: str, packs: bool = True
) -> tuple[dict[str, str], list[str]]:
    """Return the program's output per problem, and the launched kernels."""
    libraries = tmp_path / ("with" if packs else "without")
    program = tmp_path / "order"
    if not libraries.is_dir():
        libraries.mkdir()
        for file in (BUNDLE / "lib").iterdir():
            if file.name in LIBRARIES or (packs and file.suffix == ".qpack"):
                shutil.copy(file, libraries)
    if not program.exists():
        command = [CLANG, *PLACES, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fuse-ld=lld"]
        command += [str(HERE / "order/main.cpp"), f"-I{BUNDLE}/include", "-o", str(program)]
        command += [str(libraries / name) for name in LIBRARIES]
        subprocess.run([*command, "-lamdhip64"], check=True)
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    result = FakeHip(FAKE, "gfx950", (libraries,)).run([program, *arguments], log)
    assert result.returncode == 0, result.stderr
    output = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    return output, [launch.kernel for launch in read_log(log)]


def test_kind_of_each_problem(tmp_path: Path) -> None:
    """Prevents: the order is ignored, or Triton kernels serve problems that they do not support."""
    output, launched = run_program(tmp_path)
    kinds = {name: text.split(", ")[0] for name, text in output.items()}
    assert kinds == {
        # The order of [order] in the manifest, which differs from the default.
        "of_manifest": "triton",
        "usual": "assembly",
        "no_assembly": "composable_kernel",
        "ck_alone": "composable_kernel",
        "no_lse": "none",
        "dropout": "none",
        "hdim_64": "none",
        "soft_cap": "none",
        "odd_stride": "none",
        "odd_stride_elsewhere": "composable_kernel",
        "gaps_in_lse": "none",
        # An invalid problem: no other kind is tried.
        "uneven_heads": "-6",
        # Only Triton has a library for this direction.
        "backward": "triton",
        "shared_heads": "none",
    }
    kernel = "attention_forward-HDIM_128-VARLEN_True-dtype_bf16-gfx950"
    assert output["of_manifest"] == f"triton, {kernel}, 0"
    assert output["backward"].endswith(f", {4 * 4 * 300}")
    assert launched == []


def test_launches_follow_the_order(tmp_path: Path) -> None:
    """Prevents: a launch by another kind than `find` reports, or with missing memory."""
    output, launched = run_program(tmp_path, "launch")
    assert output == {
        "of_manifest": "triton",
        "usual": "assembly",
        "no_assembly": "composable_kernel",
        "soft_cap": "-1, no kernel of any kind serves the problem",
        "no_workspace": "-6, workspace_size: fewer than 4800 bytes",
        "backward": "triton",
        "no_starts": "-6, bias, seqstart_q or seqstart_k: null",
    }
    forward, assembly, ck, *backward = launched
    assert forward == "attention_forward"
    assert "fmha_fwd" in assembly
    assert "ck_tile" in ck
    assert backward == [f"attention_backward_{part}" for part in ("delta", "dkdv", "dq")]


def test_kind_without_pack_is_skipped(tmp_path: Path) -> None:
    """Prevents: missing files of a kind fail a program although another kind serves."""
    output, launched = run_program(tmp_path, "launch", packs=False)
    assert output["of_manifest"] == "composable_kernel"
    assert "ck_tile" in launched[0]
    assert output["backward"].startswith("-4, no pack of kernels for gfx950")
