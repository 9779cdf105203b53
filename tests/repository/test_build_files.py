"""BUILD files and headers of an example plan. Texts of a real plan are in tests/golden/plan."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

from qola.manifest.constants import KNOWN_ARCHS
from qola.plan.model import EntryPoint, GeneratedSource, HeaderSet, Plan, PlannedBatch
from qola.repository import build_files as emit
from tests.support import plans

BOTH = ("gfx942", "gfx950")


HEADERS = HeaderSet("fwd", ("inc",), ("inc/a.h", "inc/b.h"))
PLAN = plans.plan(
    PlannedBatch("two", (2, 0), "libmha_fwd/kernels/batches/two.cpp", ""),
    copts=('-DTEXT="a\\b"',),
    archs=BOTH,
    header_sets=(HEADERS, HeaderSet("libmha_fwd", ("inc", "csrc"), ("inc/a.h",))),
    kernels=(
        plans.kernel("k2", entry="fwd_gfx950"),
        plans.kernel("k1", entry="fwd_gfx9", archs=BOTH),
        plans.kernel("k3", entry="fwd_gfx950"),
    ),
    modules=(
        plans.module(
            entries=(EntryPoint("mha_fwd", 12, ()),),
            kernels=(1, 0, 2),
            sources=(GeneratedSource("own", "m/sources/own.cpp", "", "fwd", "entry", ()),),
        ),
    ),
)


def parse_calls(plan: Plan) -> dict[str, dict[str, object]]:
    """Return the arguments of each call in the BUILD file, by function and name."""
    text = emit.manifest_build_file(plan, source="m.toml", aiter="tree")
    found: dict[str, dict[str, object]] = {}
    # Starlark of this simple kind is Python: only calls with plain values.
    for statement in ast.parse(text).body:
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        function = ast.unparse(statement.value.func)
        arguments = {str(k.arg): ast.literal_eval(k.value) for k in statement.value.keywords}
        found[f"{function} {arguments['name']}" if function != "load" else function] = arguments
    return found


def test_kernels_with_other_headers_are_a_separate_group() -> None:
    """Prevents: a cache miss of a kernel because of a header that only another kernel includes."""
    (fwd,) = PLAN.units
    other = replace(fwd, name="libmha_fwd/fwd.fwd_1", headers="fwd_1", kernels=(1,), batches=())
    sets = (*PLAN.header_sets, HeaderSet("fwd_1", ("inc",), ("inc/b.h",)))
    units = (replace(fwd, kernels=(0, 2)), other)
    found = parse_calls(replace(PLAN, units=units, header_sets=sets))
    group = found["kernel_unit libmha_fwd/fwd.fwd_1"]
    assert (group["headers"], group["kernel_group"]) == (":fwd_1.headers", "fwd")
    assert group["entries"] == {"fwd_gfx9": ["k1"]}
    library = found["module_library libmha_fwd"]
    assert library["kernels"]["gfx942 gfx950"] == [":libmha_fwd/fwd.fwd_1/k1"]  # type: ignore[index]


def test_flags_and_own_sources() -> None:
    """Prevents: a flag with other characters, or a module's own source that an arch lacks."""
    found = parse_calls(PLAN)
    copts = found["kernel_unit libmha_fwd/fwd"]["copts"]
    assert tuple(copts) == PLAN.units[0].copts  # type: ignore[arg-type]
    own = {"own": "m/sources/own.cpp"}
    sources = found["module_library libmha_fwd"]["sources"]
    assert sources == dict.fromkeys(("gfx942 gfx950", *BOTH), own)


def test_bazel_knows_all_archs_of_manifests(repo_root: Path) -> None:
    """Prevents: an arch of manifests that --@qola//:archs refuses or cannot select."""
    text = (repo_root / "rules_hip/lib/settings.bzl").read_text(encoding="utf-8")
    (found,) = re.findall(r"^KNOWN_ARCHS = (\[.*?^\])$", text, re.MULTILINE | re.DOTALL)
    assert tuple(ast.literal_eval(found)) == KNOWN_ARCHS


def test_export_list_without_a_namespace() -> None:
    """Prevents: a library that exports symbols outside of its namespace."""
    assert re.findall(r"[\w:*]+;", emit.export_list("")) == ["qola::*;", "qola_mha_*;", "*;"]


def test_configuration_header_defines_macros() -> None:
    """Prevents: struct layouts that differ between user and library, or an overridden -D."""
    modules = (replace(PLAN.modules[0], macros={"ENABLE_CK": "0", "EMPTY": ""}),)
    text = emit.config_header(replace(PLAN, modules=modules), source="m.toml")
    assert "#ifndef EMPTY\n#define EMPTY\n#endif\n" in text
    assert "#ifndef ENABLE_CK\n#define ENABLE_CK 0\n#endif\n" in text


def test_configuration_header_without_a_namespace() -> None:
    """Prevents: an empty QOLA_NAMESPACE, and so qola::::, for a manifest without a namespace."""
    text = emit.config_header(replace(PLAN, namespace=""), source="m.toml")
    assert re.findall("^#.*", text, re.M) == ["#pragma once", "#define QOLA_MHA_FWD_PARAMETERS 12"]


def test_manifest_path_cannot_inject_code() -> None:
    """Prevents: a manifest path that adds a call to a BUILD file, or C++ to a header."""
    source = 'm.toml\nload("//evil:evil.bzl", "x")\r\n'
    for text in (
        emit.manifest_build_file(PLAN, source=source, aiter="aiter"),
        emit.config_header(PLAN, source=source),
    ):
        (line,) = (line for line in text.splitlines() if "evil" in line)
        assert line.startswith(("#", "//"))
