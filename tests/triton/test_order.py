"""One problem for three kinds of kernels: which of them serves it, in which order."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from qola.launch.fake_hip import FakeHip, read_log
from tests.bundle.project import bundle
from tests.support.sdk import compiler_of

HERE = Path(__file__).resolve().parent
BUNDLE = bundle("QOLA_TEST_ORDER")
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
CLANG, *PLACES = compiler_of(Path(os.environ["QOLA_TEST_CLANG"]).resolve().parents[1])
LIBRARIES = ("order_libmha_fwd.so", "order_triton.so")


def ask(tmp_path: Path, *arguments: str, packs: bool = True) -> tuple[dict[str, str], list[str]]:
    """Return what the program says by problem, and what it launches: triton, or another kind."""
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
    done = FakeHip(FAKE, "gfx950", (libraries,)).run([program, *arguments], log)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    return said, [launch.kernel for launch in read_log(log)]


def test_who_serves_a_problem(tmp_path: Path) -> None:
    """Prevents: an order that is passed over; Triton's kernels for what they compute otherwise."""
    said, launched = ask(tmp_path)
    kinds = {name: words.split(", ")[0] for name, words in said.items()}
    assert kinds == {
        # As [order] of the manifest has it, and not the usual way.
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
        # A problem that is wrong, and not one for others.
        "uneven_heads": "-6",
        # There is no library for it but Triton's.
        "backward": "triton",
        "shared_heads": "none",
    }
    kernel = "attention_forward-HDIM_128-VARLEN_True-dtype_bf16-gfx950"
    assert said["of_manifest"] == f"triton, {kernel}, 0"
    assert said["backward"].endswith(f", {4 * 4 * 300}")
    assert launched == []


def test_launches_in_an_order(tmp_path: Path) -> None:
    """Prevents: a launch by another kind than `find` says, or of memory that nobody gave."""
    said, launched = ask(tmp_path, "launch")
    assert said == {
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


def test_a_missing_pack_leaves_it_to_the_next(tmp_path: Path) -> None:
    """Prevents: a program that fails for one kind's missing files while another serves."""
    said, launched = ask(tmp_path, "launch", packs=False)
    assert said["of_manifest"] == "composable_kernel"
    assert "ck_tile" in launched[0]
    assert said["backward"].startswith("-4, no pack of kernels for gfx950")
