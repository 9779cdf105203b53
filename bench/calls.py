"""Measures first calls, calls of loaded kernels and loading, of lazy, split and full libraries.

    ./bazelw build //gfxemu/fake_hip @qola_quickstart//:{bundle,lazy_bundle,split_bundle}
    python3 -m bench.calls --full BUNDLE --lazy LAZY_BUNDLE --split SPLIT_BUNDLE --sdk SDK \
        --work EMPTY_DIRECTORY --runtime bazel-bin/gfxemu/fake_hip/libamdhip64.so.7

Prints a table; without --lazy, only the rows of split libraries. The fake HIP runtime is the
device, so a call ends where the kernel would start. Problems are bf16 with head dimension 128.
Compiles are compared with a distribution's clang, one command per kernel, one after the other,
like ck-jit; the other rows with the full library.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import BenchError
from bench.report import quantity
from bench.setting import ROOT, as_distributed, place_flags
from qola_base.errors import Finding, QolaError

_NO_MASK, _BOTTOM_RIGHT = "0", "2"
_REPETITIONS = 7
_CALLS = 200_000


@dataclass(frozen=True)
class Side:
    """A bundle, with the environment variables that its library reads."""

    bundle: Path
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Caller:
    """The program of calls.c, with its environment."""

    program: Path
    environ: Mapping[str, str]

    def call(
        self, side: Side, entry: str, *, mask: str = _NO_MASK, calls: int = 1
    ) -> dict[str, float]:
        """Load a library in a new process and call it; return its measurements.

        Raises:
            BenchError: the library has no kernel for the problem, or cannot be loaded.
        """
        direction = entry.removeprefix("mha_")
        (library,) = side.bundle.glob(f"lib/*libmha_{direction}.so")
        command: list[str | Path] = [self.program, library, entry, "128", mask, str(calls)]
        environ = {**self.environ, **side.environ}
        run = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if run.returncode:
            raise BenchError(Finding(str(library), run.stderr, "a library that serves the problem"))
        found: dict[str, float] = json.loads(run.stdout)
        return found


def compiler(sdk: Path) -> list[str]:
    """Return the command by which an SDK's clang++ finds its parts."""
    return [f"{sdk}/bin/clang++", *place_flags(sdk), f"-L{sdk}/rocm/lib"]


def build_caller(sdk: Path, bundle: Path, output: Path) -> None:
    """Compile calls.c against the headers of a bundle."""
    command = [f"{sdk}/bin/clang", *compiler(sdk)[1:], "-fuse-ld=lld", "-Qunused-arguments"]
    command += ["-O2", "-D__HIP_PLATFORM_AMD__=1"]
    command += [
        f"-I{bundle}/include",
        f"-I{sdk}/rocm/include",
        str(ROOT / "bench/calls.c"),
    ]
    subprocess.run([*command, "-o", str(output), "-lamdhip64", "-ldl"], check=True)


def compiles(work: Path, lazy: Path, sdk: Path) -> dict[str, Side]:
    """Return the two ways to compile kernels: this project, and one plain command per kernel."""
    plain = work / "distributed"
    as_distributed(sdk, plain)
    return {
        name: Side(
            lazy,
            {
                "QOLA_CACHE": str(work / f"cache_{name}"),
                "QOLA_COMPILER": " ".join(compiler(place)),
                **more,
            },
        )
        for name, place, more in (("ours", sdk, {}), ("theirs", plain, {"MAX_JOBS": "1"}))
    }


def packed(side: Side, work: Path) -> Side:
    """Return the same kernels in a pack, without a cache."""
    pack = work / "kernels.qpack"
    tool = side.bundle / "bin/qola-kernels"
    subprocess.run([tool, "export", "--output", pack], env=dict(side.environ), check=True)
    none = {"QOLA_CACHE": str(work / "cache_none"), "QOLA_LAZY": "never"}
    return Side(side.bundle, {**none, "QOLA_PACKS": str(pack)})


Row = tuple[str, str, str, float]


def row(name: str, ours: float, theirs: float, unit: str = "s") -> Row:
    """Return a line of the table."""
    return name, quantity(ours, unit), quantity(theirs, unit), theirs / ours


def first_calls(caller: Caller, sides: Mapping[str, Side]) -> list[Row]:
    """Measure calls that compile kernels."""
    rows = []
    for name, entry, mask in (
        ("first forward call", "mha_fwd", _NO_MASK),
        ("first call of a second forward kernel", "mha_fwd", _BOTTOM_RIGHT),
        ("first backward call", "mha_bwd", _NO_MASK),
    ):
        ours, theirs = (
            caller.call(sides[side], entry, mask=mask)["first_call_seconds"]
            for side in ("ours", "theirs")
        )
        rows.append(row(name, ours, theirs))
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def loads(caller: Caller, full: Side, other: Side, names: Mapping[str, str]) -> list[Row]:
    """Measure loading, and calls of compiled kernels, against the full libraries.

    The bundles may be of one direction.

    Args:
        names: name of the row by measurement.
    """
    rows: list[Row] = []
    for entry, of in (("mha_fwd", "forward"), ("mha_bwd", "backward")):
        if not any(full.bundle.glob(f"lib/*lib{entry}.so")):
            continue
        # In turns: the machine may be busy with something else for a while.
        runs = [
            [caller.call(side, entry, calls=_CALLS) for side in (other, full)]
            for _ in range(_REPETITIONS)
        ]
        for measured, name in names.items():
            ours, theirs = (min(run[side][measured] for run in runs) for side in (0, 1))
            unit = "bytes" if measured.endswith("bytes") else "s"
            rows.append(row(f"{name}, {of}", ours, theirs, unit))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="bench.calls",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, text in (
        ("full", "the bundle"),
        ("runtime", "the fake HIP runtime"),
        ("sdk", "the pinned SDK, @rocm_sdk's sdk/"),
        ("split", "the split bundle of the same manifest"),
        ("work", "a directory for caches, new or empty"),
    ):
        parser.add_argument(f"--{name}", required=True, type=Path, help=text)
    parser.add_argument("--lazy", type=Path, help="the lazy bundle of the same manifest")
    parser.add_argument("--arch", default="gfx950", help="arch of the device")
    args = parser.parse_args(argv)
    try:
        rows = measure(args)
    except QolaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("| Row | Ours | Theirs | Theirs / ours |\n| --- | ---: | ---: | ---: |")
    for name, ours, theirs, ratio in rows:
        print(f"| {name} | {ours} | {theirs} | {ratio:.2f} |")
    return 0


def measure(args: argparse.Namespace) -> list[Row]:
    """Measure everything; return the table's rows."""
    args.work.mkdir(parents=True, exist_ok=True)
    sdk, work = args.sdk.absolute(), args.work.resolve()
    program = work / "calls"
    build_caller(sdk, args.full, program)
    device = {
        "FAKE_HIP_ARCH": args.arch,
        "LD_LIBRARY_PATH": str(args.runtime.resolve().parent),
        "PATH": os.environ["PATH"],
    }
    caller = Caller(program, device)
    full, split = Side(args.full.resolve(), {}), Side(args.split.resolve(), {})
    loaded = {
        "call_seconds": "a call of loaded kernels",
        "first_call_seconds": "first call",
        "dlopen_seconds": "dlopen",
        "resident_bytes": "resident after dlopen",
    }
    rows = loads(caller, full, split, {key: f"split: {name}" for key, name in loaded.items()})
    if args.lazy is None:
        return rows
    # Caches reject bundles that others may write to, or that contain links.
    lazy = Path(shutil.copytree(args.lazy, work / "lazy", copy_function=shutil.copyfile))
    (lazy / "bin/qola-kernels").chmod(0o755)
    shutil.rmtree(next((lazy / "share/qola").iterdir()) / "packs", ignore_errors=True)
    sides = compiles(work, lazy, sdk)
    compiled = first_calls(caller, sides)
    cached = loaded | {"first_call_seconds": "first call, from the cache"}
    pack = packed(sides["ours"], work)
    return [
        *compiled,
        *loads(caller, full, sides["ours"], cached),
        *loads(caller, full, pack, {"first_call_seconds": "first call, from a pack"}),
        *rows,
    ]


if __name__ == "__main__":
    sys.exit(main())
