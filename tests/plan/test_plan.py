"""The format and schema version of plan.json, and its description in docs/reference/plan.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.codegen.types import CodeObject
from qola.common.layout import library_file
from qola.fetch.pins import PatchPin
from qola.plan.model import (
    SCHEMA_VERSION,
    GeneratedSource,
    HeaderSet,
    KernelInstance,
    Plan,
    PlannedAiter,
    PlannedBatch,
    PlannedFile,
)
from qola_base.errors import Finding, PlanError
from tests.support import plans
from tests.support.later_tree import write_later_tree

MANIFEST = """\
[qola]
[build]
architectures = ["gfx950"]
max_bytes = 1_000_000_000
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
[[modules]]
name = "libmha_bwd"
[[modules]]
name = "module_aiter_enum"
mode = "pybind"
[[modules]]
name = "module_mha_fwd"
mode = "pybind"
[[modules]]
name = "module_fmha_v3_fwd"
mode = "pybind"
[[modules]]
name = "module_norm"
mode = "pybind"
[[mha_fwd_variants]]
dtype = "bf16"
hdim = [128, [192, 128]]
has_dropout = false
[[mha_bwd_variants]]
dtype = "bf16"
hdim = 64
mode = "batch"
[[kernels]]
names = ["fwd.bf16.batch.d128x128.gfx950.b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16\
.p-qr_async.v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload.spad.nskpad.dpad.dvpad"]
"""


#: A manifest with an added direction.
ADDED = """\
[build]
architectures = ["gfx942"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
add_directions = ["fwd_appendkv"]
hsa_subdirs = []
drop_directions = ["fwd", "fwd_splitkv", "batch_prefill"]
[[mha_fwd_variants]]
hdim = 32
dtype = "fp16"
"""
#: A later AITER tree, whose sources include assembly tables; a Triton kernel; launch orders.
LATER = """\
[build]
refuse_proven_faults = true
architectures = ["gfx942"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_bwd"
add_flags_extra_cc = ["-DENABLE_CK=0"]
[[triton]]
kernels = ["attention_forward"]
hdims = 64
dtypes = "fp16"
[order]
forward = ["triton"]
backward = ["triton"]
"""


def kernel(name: str, direction: str = "fwd") -> KernelInstance:
    fields = {"mask": True, "dtype": "bf16"}
    return plans.kernel(name, direction=direction, fields=fields, variants=(0,))


FILES = (PlannedFile("fwd", "libmha_fwd/fwd.cpp", "3" * 64),)
PLAN = plans.plan(
    PlannedBatch("two", (0, 1), "libmha_fwd/two.cpp", "5" * 64),
    copts=("-DX",),
    manifest={"namespace": "ns", "architectures": ["gfx950"]},
    aiter=PlannedAiter("wheel", "", "1", (PatchPin("a.patch", "4" * 64),)),
    header_sets=(HeaderSet("fwd", ("inc",), ("inc/a.h", "inc/b.h")),),
    kernels=(kernel("k2"), kernel("k1"), kernel("k3", "fwd_splitkv")),
    modules=(
        plans.module(
            copts=("-DX",),
            kernels=(0, 1, 2),
            sources=(GeneratedSource("api", "libmha_fwd/api.cpp", "1" * 64, "fwd", "dispatch"),),
            code_objects=(CodeObject("hsa/gfx950/a.co", "csrc/a.co", "gfx950", "2" * 64, 4096),),
            stubs=FILES,
            entry_sources=FILES,
        ),
    ),
    python_modules=(replace(plans.python_module("module_x", "x.so"), sources=FILES),),
    warnings=(Finding("place", "föund", "expected", severity="warning"),),
    qola="0.0.1",
)


def test_text_has_one_object_per_line() -> None:
    """Prevents: plans that diff cannot compare line by line; tests/golden/plan has a whole one."""
    lines = PLAN.to_json().splitlines(keepends=True)
    for name in ("k1", "k2", "k3", "two"):
        (line,) = (line for line in lines if re.match(" +{", line) and f'"name": "{name}"' in line)
        assert json.loads(line.rstrip(",\n"))["name"] == name
    assert '"föund"' in "".join(lines)
    assert lines[-1] == "}\n"


def test_plan_survives_a_round_trip() -> None:
    """Prevents: a field that plan.json loses, or that has another type after reading."""
    text = PLAN.to_json()
    read = Plan.from_json(text)
    assert read == PLAN
    assert read.to_json() == text
    assert json.loads(text).keys() == {*vars(PLAN), "schema"}


def test_extra_keys_are_ignored_by_the_reader() -> None:
    """Prevents: output of `plan --json --estimate` that cannot be read as a plan."""
    text = PLAN.to_json(estimate={"cores": 2})
    assert json.loads(text)["estimate"] == {"cores": 2}
    assert Plan.from_json(text) == PLAN


@pytest.mark.parametrize("schema", [SCHEMA_VERSION + 1, SCHEMA_VERSION - 1, None, "1"])
def test_other_schema_versions_are_refused(schema: object) -> None:
    """Prevents: a plan of another qola version that is read with wrong meanings."""
    with pytest.raises(PlanError, match=re.escape(f"{schema!r}; this qola reads {SCHEMA_VERSION}")):
        Plan.from_json(json.dumps({"schema": schema}))


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(PLAN.to_json()), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, "nested more than"),
        ("[]", "schema None"),
        (changed(name=3), ".name: 3, expected str"),
        (changed(archs="gfx950"), ".archs: 'gfx950', expected a list"),
        (changed(kernels=[{}]), ".kernels: no name"),
    ],
)
def test_invalid_plan_files_are_refused(text: str, message: str) -> None:
    """Prevents: a traceback for a damaged plan.json, instead of a PlanError."""
    with pytest.raises(PlanError) as caught:
        Plan.from_json(text)
    assert message in str(caught.value)


def test_library_file_names() -> None:
    """Prevents: a leading underscore in file names of libraries without a namespace."""
    assert library_file("te", "libmha_fwd") == "te_libmha_fwd.so"
    assert library_file("", "libmha_fwd") == "libmha_fwd.so"


FUNCTIONS = """\
[build]
architectures = ["gfx942"]
mode = "aiter"
[[functions]]
name = "top_k_renorm_probs"
arguments = { d = 8 }
"""


@pytest.fixture(scope="module")
def documented(repo_root: Path) -> dict[str, set[str]]:
    """Return the documented keys of docs/reference/plan.md, by section title."""
    page = (repo_root / "docs/reference/plan.md").read_text(encoding="utf-8")
    sections = re.split(r"^##+ (.*)$", page, flags=re.MULTILINE)
    return {
        title: {
            key
            for cell in re.findall(r"^\| (`.*?) \|", body, re.MULTILINE)
            for key in re.findall(r"`(\w+)`", cell)
        }
        for title, body in zip(sections[1::2], sections[2::2], strict=True)
    }


_FREE_KEYS = (
    "aiter_python",
    "manifest.functions.arguments",
    "manifest.modules.overrides",
    "modules.macros",
    "python_modules.batch_files",
    "python_modules.source_copts",
    "torch_modules.batch_files",
    "torch_modules.source_copts",
)


def objects(data: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each JSON object in `data` with its path, such as kernels.fields or modules.sources."""
    if isinstance(data, list):
        for item in data:
            yield from objects(item, path)
    elif isinstance(data, dict):
        yield path, data
        for key, value in data.items():
            below = f"{path}.{key}" if path != "Top level" else key
            # Keys of the skipped objects are names from the manifest or from AITER.
            if below not in _FREE_KEYS and key not in ("choices", "signature"):
                yield from objects(value, below)


def test_documentation_is_complete(
    documented: dict[str, set[str]], tree: AiterTree, tmp_path: Path
) -> None:
    """Prevents: a key of plan.json without a description, or a documented key that no plan has."""
    later = read_tree(write_later_tree(tmp_path / "later"))
    texts = {MANIFEST: tree, LATER: later, ADDED: tree, FUNCTIONS: tree}
    data, *more = [
        json.loads(plans.plan_text(text, aiter_tree).to_json())
        for text, aiter_tree in texts.items()
    ]
    assert data["warnings"], "the manifest is meant to have some"
    found: dict[str, set[str]] = {}
    for plan in (data, *more):
        for path, value in objects(plan, "Top level"):
            found.setdefault(path, set()).update(value)
    roles = {kernel["role"] for kernel in data["kernels"]}
    assert len(roles) == 9, "every role's fields are to be looked at"
    for path, keys in found.items():
        assert keys - documented[path] == set(), f"docs/reference/plan.md, {path}: not described"
        # The fields depend on CK: the page may describe additional ones.
        if path != "kernels.fields":
            assert documented[path] - keys == set(), (
                f"docs/reference/plan.md, {path}: not in the plan"
            )
    assert set(documented) - set(found) == {"The command line's JSON"}


def test_documentation_states_the_schema_version(repo_root: Path) -> None:
    """Prevents: a page with an outdated schema version."""
    page = (repo_root / "docs/reference/plan.md").read_text(encoding="utf-8")
    assert f"`schema` is the version of this file format, now {SCHEMA_VERSION}." in page
