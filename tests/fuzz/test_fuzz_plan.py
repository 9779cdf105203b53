"""Hostile plan.json: read or refused, and what is written from it is what it says."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from qola.aiter.attention import ENTRIES
from qola.bundle.record import manifest_record, to_json
from qola.codegen.types import CodeObject
from qola.errors import Finding
from qola.files import sha256_of_text
from qola.inspect.costs import DEFAULT_COSTS, load_costs
from qola.inspect.estimate import estimate
from qola.inspect.query import count, items_of
from qola.launch.problems import problems
from qola.lazy.__main__ import make_index
from qola.lazy.index import render_index, render_table
from qola.plan.model import HeaderSet, Plan, PlannedBatch, PlannedFile, PlannedSource
from qola.repository.build_files import config_header, manifest_build_file
from tests.fuzz.fuzzing import fuzz, mutate_json
from tests.fuzz.starlark_reader import values_of
from tests.support import plans

TEXT = "int x;\n"
DIGEST = sha256_of_text(TEXT)
FIELDS = {"dtype": "bf16", "hdim_q": 64, "mode": "batch", "mask": True}
PLAN = plans.plan(
    packages={"fwd": plans.package("-DX")},
    header_sets=(HeaderSet("fwd", ("inc",), ("inc/a.h",)), HeaderSet("libmha_fwd", ("inc",), ())),
    kernels=tuple(
        plans.kernel(f"k{n}", headers="fwd", entry="e", fields=FIELDS, sha256=DIGEST)
        for n in range(2)
    ),
    modules=(
        plans.module(
            copts=("-DX",),
            kernels=(0, 1),
            macros={"M": "1"},
            sources=(PlannedSource("api", "libmha_fwd/api.cpp", "fwd", "dispatch", "1" * 64, ()),),
            code_objects=(CodeObject("hsa/gfx950/a.co", "csrc/a.co", "gfx950", "2" * 64, 4096),),
            stubs=(PlannedFile("fwd", "libmha_fwd/stubs.cpp", "3" * 64),),
            entry_sources=(PlannedFile("e", "libmha_fwd/e.cpp", DIGEST),),
        ),
    ),
    python_modules=(plans.python_module("module_x", "x.so"),),
    batches=(PlannedBatch("w", "fwd", (0, 1), "libmha_fwd/w.cpp", DIGEST),),
    warnings=(Finding("place", "found", "expected", severity="warning"),),
    configs=("aiter/configs/a.csv",),
)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 1.5, float("nan"), "", [], {}, [[]], {"a": 1}),
    *("gfx942", "fwd", "fwd_splitkv", "dispatch", "k1", "libmha_fwd", "../../x", "/etc/passwd"),
    ['x"\n'],
)


def text_of(rng: random.Random) -> str:
    """Return a plan with some values of other kinds, keys gone or lists long, or a changed text."""
    return mutate_json(rng, PLAN.to_json(), VALUES)


def readers(directory: Path) -> list[Callable[[Plan], object]]:
    """Return what reads plans, as functions of one."""
    for name in ("abi.h", "tree/inc/a.h", "script.ld"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    (directory / "identity").write_text("qola_identity x")
    costs = load_costs(DEFAULT_COSTS)
    settings = {
        "module": "libmha_fwd",
        "tree": directory / "tree",
        "abi_header": directory / "abi.h",
    }
    settings |= {"identity": directory / "identity", "flags": [], "arch_flags": {}, "place": "p"}
    settings |= {"link_flags": [], "link_script": directory / "script.ld"}

    def builds(plan: Plan) -> None:
        text = manifest_build_file(plan, source="m.toml\nx()", aiter="aiter")
        written = values_of(text)
        assert {module.library for module in plan.modules} <= written
        assert {flag for module in plan.modules for flag in module.copts} <= written
        assert {kernel.name for m in plan.with_kernels for kernel in plan.kernels_of(m)} <= written

    def index(plan: Plan) -> None:
        made = make_index(settings, plan)
        rows = render_index(made).split("\n")
        assert len([row for row in rows if row.startswith("kernel\t")]) == len(made.kernels)
        render_table(made).encode()

    def header(plan: Plan) -> None:
        for line in config_header(plan, source="m.toml\nint x;").splitlines():
            assert not line or line.startswith(
                ("//", "#pragma once", "#define", "#ifndef", "#endif")
            )

    return [
        lambda plan: plan.to_json().encode(),
        builds,
        header,
        lambda plan: count(items_of(plan)),
        lambda plan: estimate(plan, costs, 2).to_dict(),
        lambda plan: [
            p.line() for m in plan.modules for d in ENTRIES for p in problems(plan, m, d)
        ],
        lambda plan: to_json(
            manifest_record(
                plan,
                {},
                archs=plan.archs,
                plan_sha256="",
                origin={},
                toolchain={},
                generated_at=None,
            )
        ).encode(),
        index,
    ]


def test_plans(tmp_path: Path) -> None:
    """Prevents: a plan that writes elsewhere, a line of its own into a file, or a traceback."""
    for read in readers(tmp_path):
        read(PLAN)
        fuzz(text_of, partial(_read, read))


def _read(read: Callable[[Plan], object], text: str) -> None:
    read(Plan.from_json(text))
