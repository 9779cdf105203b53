"""What Bazel reads: exact texts from a made-up plan. Real ones are in tests/golden/plan."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from qola.codegen.types import CodeObject
from qola.manifest.constants import KNOWN_ARCHS
from qola.plan.model import EntryPoint, GeneratedSource, HeaderSet, PlannedBatch, PlannedFile
from qola.repository import build_files as emit
from qola.version import __version__
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
    packages={"fwd": plans.package('-DTEXT="a\\b"')},
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
CALLED = (
    '"bundle_files", "header_set", "kernel_instances", "manifest_targets", "module_library", '
    '"public_headers"'
)

MANIFEST_BUILD = f"""\
# Written by qola {__version__} from manifests/small.toml.
# Make it again: bazel fetch --force; do not edit.

load("@qola//rules/private:generated.bzl", {CALLED})

bundle_files(
    name = "bundle_files",
    configs = [
        "@tree//:aiter/configs/a.csv",
    ],
    license_files = [
        "@tree//:LICENSE",
        "@tree//:ck/LICENSE",
    ],
    tree = "@tree//:AITER.json",
)

header_set(
    name = "fwd.headers",
    headers = [
        "@tree//:inc/a.h",
        "@tree//:inc/b.h",
    ],
    include_dirs = [
        "inc",
    ],
    tree = "@tree//:AITER.json",
)

kernel_instances(
    name = "libmha_fwd/fwd",
    batches = {{
        "two": [
            "k3",
            "k2",
        ],
    }},
    copts = [
        "-DTEXT=\\"a\\\\b\\"",
    ],
    directory = "libmha_fwd",
    entries = {{
        "fwd_gfx9": [
            "k1",
        ],
        "fwd_gfx950": [
            "k2",
            "k3",
        ],
    }},
    headers = ":fwd.headers",
    kernels = {{
        "k1": ["gfx942", "gfx950"],
        "k2": ["gfx950"],
        "k3": ["gfx950"],
    }},
)

header_set(
    name = "libmha_fwd.headers",
    headers = [
        "@tree//:inc/a.h",
    ],
    include_dirs = [
        "inc",
        "csrc",
    ],
    tree = "@tree//:AITER.json",
)

public_headers(
    name = "libmha_fwd.public_headers",
    config = "include/qola_config.h",
    declarations = "include/qola_mha_fwd.h",
    headers = ":libmha_fwd.headers",
)

module_library(
    name = "libmha_fwd",
    archs = ["gfx942", "gfx950"],
    asm_domain = "libmha_fwd/include/qola_asm_domain.h",
    bundle_files = ":bundle_files",
    code_objects = {{
        "gfx942": {{
            "@tree//:csrc/b.co": "hsa/gfx942/b.co",
        }},
        "gfx950": {{
            "@tree//:csrc/a.co": "hsa/gfx950/a.co",
        }},
    }},
    copts = [],
    entry_source = "libmha_fwd/entry/mha_fwd.cpp",
    export_list = "libmha_fwd.exports",
    file = "ns_libmha_fwd.so",
    headers = ":libmha_fwd.headers",
    host_only = ["api"],
    kernel_headers = [
        ":fwd.headers",
    ],
    kernel_names = "libmha_fwd/entry/kernel_names.cpp",
    kernels = {{
        "gfx942 gfx950": [
            ":libmha_fwd/fwd/k1",
        ],
        "gfx950": [
            ":libmha_fwd/fwd/k2",
            ":libmha_fwd/fwd/k3",
        ],
    }},
    linked = {{
        "gfx942 gfx950": [
            ":libmha_fwd/fwd/k1",
        ],
        "gfx950": [
            ":libmha_fwd/fwd/two",
        ],
    }},
    namespace = "ns",
    place = "share/qola/ns/libmha_fwd",
    plan = "plan.json",
    public_headers = ":libmha_fwd.public_headers",
    sources = {{
        "gfx942 gfx950": {{
            "api": "m/dispatch/api.cpp",
            "own": "m/sources/own.cpp",
        }},
        "gfx942": {{
            "api": "m/dispatch_gfx942/api.cpp",
            "own": "m/sources/own.cpp",
        }},
        "gfx950": {{
            "api": "m/dispatch_gfx950/api.cpp",
            "own": "m/sources/own.cpp",
        }},
    }},
    stubs = [
        "m/stubs/fwd.cpp",
    ],
    tree = "@tree//:AITER.json",
)

manifest_targets(
    name = "small",
    modules = ["libmha_fwd"],
    version = "{__version__}",
)
"""


def test_the_manifests_build_file() -> None:
    """Prevents: kernels of another module, or in another order, in a library."""
    text = emit.manifest_build_file(PLAN, source="manifests/small.toml", aiter="tree")
    assert text == MANIFEST_BUILD


def test_kernels_that_include_other_headers_are_a_group_of_their_own() -> None:
    """Prevents: a kernel that misses a cache for a header which only another kernel includes."""
    kernels = [replace(k, headers="fwd_1") if k.name == "k1" else k for k in PLAN.kernels]
    sets = (*PLAN.header_sets, HeaderSet("fwd_1", ("inc",), ("inc/b.h",)))
    plan = replace(PLAN, kernels=tuple(kernels), header_sets=sets)
    text = emit.manifest_build_file(plan, source="m.toml", aiter="tree")
    group = text.partition('    name = "libmha_fwd/fwd.fwd_1",')[2].partition("\n)\n")[0]
    assert 'headers = ":fwd_1.headers",' in group
    assert 'package = "fwd",' in group
    assert '"k1": [' in group
    assert '"k2": [' not in group
    assert '":libmha_fwd/fwd.fwd_1/k1",' in text


def test_build_files_hold_calls_alone() -> None:
    """Prevents: logic in generated files, and strings that are not what they were."""
    text = emit.manifest_build_file(PLAN, source="m.toml", aiter="tree")
    # Starlark of this simple kind is Python.
    for statement in ast.parse(text).body:
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        for argument in statement.value.keywords:
            ast.literal_eval(argument.value)
    (call,) = (
        s.value
        for s in ast.parse(text).body
        if isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and getattr(s.value.func, "id", "") == "kernel_instances"
    )
    copts = next(k.value for k in call.keywords if k.arg == "copts")
    assert tuple(ast.literal_eval(copts)) == PLAN.packages["fwd"].copts


def test_bazel_knows_the_archs_that_a_manifest_may_name(repo_root: Path) -> None:
    """Prevents: a manifest's arch that --@qola//:archs refuses, or cannot select."""
    text = (repo_root / "rules/private/settings.bzl").read_text(encoding="utf-8")
    (found,) = re.findall(r"^KNOWN_ARCHS = (\[.*?^\])$", text, re.MULTILINE | re.DOTALL)
    assert tuple(ast.literal_eval(found)) == KNOWN_ARCHS


@pytest.mark.parametrize(
    ("namespace", "scope", "prefix"),
    [("ns", "qola::ns", "qola_ns_mha_"), ("", "qola", "qola_mha_")],
)
def test_the_export_list(namespace: str, scope: str, prefix: str) -> None:
    """Prevents: a library that exports more than its namespace."""
    assert emit.export_list(namespace) == (
        f'{{\n  global:\n    extern "C++" {{\n      {scope}::*;\n    }};\n    {prefix}*;\n'
        "  local:\n    *;\n};\n"
    )


def config_lines(namespace: str) -> list[str]:
    text = emit.config_header(replace(PLAN, namespace=namespace), source="m.toml")
    return [line for line in text.splitlines() if line.startswith("#")]


def test_the_configuration_header() -> None:
    """Prevents: a consumer that calls another namespace, or with other parameters."""
    assert config_lines("ns") == [
        "#pragma once",
        "#define QOLA_NAMESPACE ns",
        "#define QOLA_MHA_FWD_PARAMETERS 12",
        "#define QOLA_MHA_FWD_SPLITKV_PARAMETERS 7",
    ]


def test_the_configuration_header_has_macros_that_headers_ask_for() -> None:
    """Prevents: a user whose structs differ from the library's, or whose own -D is overruled."""
    modules = (replace(PLAN.modules[0], macros={"ENABLE_CK": "0", "EMPTY": ""}),)
    text = emit.config_header(replace(PLAN, modules=modules), source="m.toml")
    assert "#ifndef EMPTY\n#define EMPTY\n#endif\n" in text
    assert "#ifndef ENABLE_CK\n#define ENABLE_CK 0\n#endif\n" in text


def test_the_configuration_header_without_a_namespace() -> None:
    """Prevents: an empty QOLA_NAMESPACE, and so qola:::: where the manifest names none."""
    assert config_lines("")[1] == "#define QOLA_MHA_FWD_PARAMETERS 12"


def test_a_manifest_name_is_no_line_of_a_file() -> None:
    """Prevents: a manifest whose path writes a call into a BUILD file, or C++ into a header."""
    source = 'm.toml\nload("//evil:evil.bzl", "x")\r\n'
    for text in (
        emit.manifest_build_file(PLAN, source=source, aiter="aiter"),
        emit.config_header(PLAN, source=source),
    ):
        (line,) = (line for line in text.splitlines() if "evil" in line)
        assert line.startswith(("#", "//"))
