"""BUILD files and headers of an example plan. Texts of a real plan are in tests/golden/plan."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from qola.codegen.types import CodeObject
from qola.manifest.constants import KNOWN_ARCHS
from qola.plan.model import (
    EntryPoint,
    GeneratedSource,
    HeaderSet,
    Plan,
    PlannedBatch,
    PlannedFile,
)
from qola.repository import build_files as emit
from tests.support import plans

BOTH = ("gfx942", "gfx950")


def source(name: str, role: str, folder: str, archs: tuple[str, ...]) -> GeneratedSource:
    return GeneratedSource(name, f"m/{folder}/{name}.cpp", "", "fwd", role, archs)


HEADERS = HeaderSet("fwd", ("inc",), ("inc/a.h", "inc/b.h"))
PLAN = plans.plan(
    archs=BOTH,
    configs=("aiter/configs/a.csv",),
    licenses=("LICENSE", "ck/LICENSE"),
    header_sets=(HEADERS, HeaderSet("libmha_fwd", ("inc", "csrc"), ("inc/a.h",))),
    kernel_groups={"fwd": plans.kernel_group('-DTEXT="a\\b"')},
    kernels=(
        plans.kernel("k2", entry="fwd_gfx950"),
        plans.kernel("other", direction="bwd", module="libmha_bwd"),
        plans.kernel("k1", entry="fwd_gfx9", archs=BOTH),
        plans.kernel("k3", entry="fwd_gfx950"),
    ),
    batches=(PlannedBatch("two", "fwd", (3, 0), "libmha_fwd/kernels/batches/two.cpp", ""),),
    modules=(
        plans.module(
            entries=(EntryPoint("mha_fwd", 12, ()), EntryPoint("mha_fwd_splitkv", 7, ())),
            kernels=(2, 0, 3),
            code_objects=(
                CodeObject("hsa/gfx942/b.co", "csrc/b.co", "gfx942", "", 1),
                CodeObject("hsa/gfx950/a.co", "csrc/a.co", "gfx950", "", 1),
            ),
            sources=(
                source("api", "dispatch", "dispatch", BOTH),
                source("api", "dispatch", "dispatch_gfx942", ("gfx942",)),
                source("api", "dispatch", "dispatch_gfx950", ("gfx950",)),
                source("own", "entry", "sources", ()),
            ),
            stubs=(PlannedFile("fwd", "m/stubs/fwd.cpp", ""),),
        ),
    ),
)


def parse_calls(plan: Plan = PLAN) -> dict[str, dict[str, object]]:
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


def test_build_file_of_a_manifest() -> None:
    """Prevents: kernels of another module, or in another order, in a library."""
    found = parse_calls()
    assert list(found) == [
        "load",
        "bundle_files bundle_files",
        "header_set fwd.headers",
        "kernel_instances libmha_fwd/fwd",
        "header_set libmha_fwd.headers",
        "public_headers libmha_fwd.public_headers",
        "module_library libmha_fwd",
        "manifest_targets small",
    ]
    assert found["header_set fwd.headers"]["headers"] == ["@tree//:inc/a.h", "@tree//:inc/b.h"]
    kernels = found["kernel_instances libmha_fwd/fwd"]
    assert kernels["batches"] == {"two": ["k3", "k2"]}
    assert tuple(kernels["copts"]) == PLAN.kernel_groups["fwd"].copts  # type: ignore[arg-type]
    assert kernels["entries"] == {"fwd_gfx9": ["k1"], "fwd_gfx950": ["k2", "k3"]}
    assert kernels["kernels"] == {"k1": [*BOTH], "k2": ["gfx950"], "k3": ["gfx950"]}
    library = found["module_library libmha_fwd"]
    assert library["code_objects"] == {
        "gfx942": {"@tree//:csrc/b.co": "hsa/gfx942/b.co"},
        "gfx950": {"@tree//:csrc/a.co": "hsa/gfx950/a.co"},
    }
    first, two = [":libmha_fwd/fwd/k1"], [":libmha_fwd/fwd/k2", ":libmha_fwd/fwd/k3"]
    assert library["kernels"] == {"gfx942 gfx950": first, "gfx950": two}
    assert library["linked"] == {"gfx942 gfx950": first, "gfx950": [":libmha_fwd/fwd/two"]}
    assert library["sources"] == {
        " ".join(archs): {"api": f"m/{folder}/api.cpp", "own": "m/sources/own.cpp"}
        for folder, archs in (
            ("dispatch", BOTH),
            ("dispatch_gfx942", ("gfx942",)),
            ("dispatch_gfx950", ("gfx950",)),
        )
    }
    assert library["stubs"] == ["m/stubs/fwd.cpp"]
    assert library["asm_domain"] == "libmha_fwd/include/qola_asm_domain.h"


def test_kernels_with_other_headers_are_a_separate_group() -> None:
    """Prevents: a cache miss of a kernel because of a header that only another kernel includes."""
    kernels = [replace(k, headers="fwd_1") if k.name == "k1" else k for k in PLAN.kernels]
    sets = (*PLAN.header_sets, HeaderSet("fwd_1", ("inc",), ("inc/b.h",)))
    found = parse_calls(replace(PLAN, kernels=tuple(kernels), header_sets=sets))
    group = found["kernel_instances libmha_fwd/fwd.fwd_1"]
    assert (group["headers"], group["kernel_group"]) == (":fwd_1.headers", "fwd")
    assert group["entries"] == {"fwd_gfx9": ["k1"]}
    library = found["module_library libmha_fwd"]
    assert library["kernels"]["gfx942 gfx950"] == [":libmha_fwd/fwd.fwd_1/k1"]  # type: ignore[index]


def test_bazel_knows_all_archs_of_manifests(repo_root: Path) -> None:
    """Prevents: an arch of manifests that --@qola//:archs refuses or cannot select."""
    text = (repo_root / "rules/private/settings.bzl").read_text(encoding="utf-8")
    (found,) = re.findall(r"^KNOWN_ARCHS = (\[.*?^\])$", text, re.MULTILINE | re.DOTALL)
    assert tuple(ast.literal_eval(found)) == KNOWN_ARCHS


@pytest.mark.parametrize(
    ("namespace", "scope", "prefix"),
    [("ns", "qola::ns", "qola_ns_mha_"), ("", "qola", "qola_mha_")],
)
def test_export_list(namespace: str, scope: str, prefix: str) -> None:
    """Prevents: a library that exports symbols outside of its namespace."""
    assert emit.export_list(namespace) == (
        f'{{\n  global:\n    extern "C++" {{\n      {scope}::*;\n    }};\n    {prefix}*;\n'
        "  local:\n    *;\n};\n"
    )


def config_lines(namespace: str) -> list[str]:
    text = emit.config_header(replace(PLAN, namespace=namespace), source="m.toml")
    return [line for line in text.splitlines() if line.startswith("#")]


def test_configuration_header() -> None:
    """Prevents: a program that calls another namespace, or passes other parameters."""
    assert config_lines("ns") == [
        "#pragma once",
        "#define QOLA_NAMESPACE ns",
        "#define QOLA_MHA_FWD_PARAMETERS 12",
        "#define QOLA_MHA_FWD_SPLITKV_PARAMETERS 7",
    ]


def test_configuration_header_defines_macros() -> None:
    """Prevents: struct layouts that differ between user and library, or an overridden -D."""
    modules = (replace(PLAN.modules[0], macros={"ENABLE_CK": "0", "EMPTY": ""}),)
    text = emit.config_header(replace(PLAN, modules=modules), source="m.toml")
    assert "#ifndef EMPTY\n#define EMPTY\n#endif\n" in text
    assert "#ifndef ENABLE_CK\n#define ENABLE_CK 0\n#endif\n" in text


def test_configuration_header_without_a_namespace() -> None:
    """Prevents: an empty QOLA_NAMESPACE, and so qola::::, for a manifest without a namespace."""
    assert config_lines("")[1] == "#define QOLA_MHA_FWD_PARAMETERS 12"


def test_manifest_path_cannot_inject_code() -> None:
    """Prevents: a manifest path that adds a call to a BUILD file, or C++ to a header."""
    source = 'm.toml\nload("//evil:evil.bzl", "x")\r\n'
    for text in (
        emit.manifest_build_file(PLAN, source=source, aiter="aiter"),
        emit.config_header(PLAN, source=source),
    ):
        (line,) = (line for line in text.splitlines() if "evil" in line)
        assert line.startswith(("#", "//"))
