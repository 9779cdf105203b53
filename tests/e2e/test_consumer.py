"""qola as a dependency: bazel_dep, a consumer's manifests, a C++ program that uses it."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.common.layout import KERNEL_COMPILE
from qola.report.execution_log import summarize_log
from tests.e2e.nested_bazel import Bazel, bazel, count_spawns, shared_bazel, shared_directory
from tests.support.running import output_of

HIT = "disk cache hit"
HOST_BUILD = """
load("@qola//rules:defs.bzl", "qola_library")
load("@rules_cc//cc:defs.bzl", "cc_library")

qola_library(name = "library", library = "@qola_left//:libmha_fwd")

cc_library(name = "host", srcs = ["host.cpp"], deps = [":library"])
"""


@pytest.fixture(scope="module")
def consumer() -> Iterator[Bazel]:
    """The consumer, built once for all tests."""
    with bazel() as instance:
        # Outputs of an earlier run may be missing in the cache by now.
        instance.run("clean")
        instance.run("build", "//...")
        yield instance


def test_program_uses_two_namespaces(consumer: Bazel) -> None:
    """Prevents: a consumer cannot compile the public headers, or two libraries collide."""
    result = consumer.run("run", "//:program")
    answers = [line for line in result.stdout.splitlines() if ": " in line]
    assert len(answers) == 4
    # Without a device, the libraries return this status.
    assert all(line.endswith(": -3") for line in answers)


def test_the_error_of_a_host_compiler_names_the_remedy(consumer: Bazel) -> None:
    """Prevents: a cc_library fails with a megabyte of CK errors and without a remedy."""
    consumer.write("host/BUILD.bazel", HOST_BUILD)
    consumer.write("host/host.cpp", '#include "qola_mha_fwd.h"\n')
    text = consumer.failure("//host")
    assert "in Bazel put it into a qola_cc_library" in text
    assert len(text) < 10_000


def test_manifests_share_kernels(consumer: Bazel) -> None:
    """Prevents: Bazel compiles a kernel once per manifest."""
    plans = [consumer.plan(side) for side in ("left", "right")]
    compiled = [set(plan.compiled_as(plan.module("libmha_fwd"))) for plan in plans]
    assert compiled[0] == compiled[1] != set()
    consumer.run("clean")
    keys: dict[str, set[object]] = {}
    for spawn in consumer.spawns("@qola_left//:libmha_fwd", "@qola_right//:libmha_fwd"):
        if spawn.mnemonic == KERNEL_COMPILE:
            key = spawn.arguments, *sorted(spawn.inputs.items())
            keys.setdefault(spawn.name, set()).add(key)
            assert spawn.cached
    assert keys.keys() == compiled[0]
    assert {len(key_set) for key_set in keys.values()} == {1}


def test_a_consumer_bundles_its_libraries(consumer: Bazel) -> None:
    """Prevents: only qola's repository can build a bundle, or a bundle contains its paths."""
    consumer.run("build", "//:left_tar")
    with tarfile.open(consumer.workspace / "bazel-bin/left.tar") as archive:
        names = archive.getnames()
        record = archive.extractfile("left/manifest.json")
        assert record is not None
        text = record.read().decode("utf-8")
    assert {
        "left/lib/left_libmha_fwd.so",
        "left/lib/libqola_left.a",
        "left/include/qola_mha_fwd.h",
        "left/licenses/qola/LICENSE",
    } <= set(names)
    assert "external/" not in text


def test_a_consumer_has_lazy_libraries(consumer: Bazel) -> None:
    """Prevents: only qola's repository can build lazy libraries, packs or wheels."""
    consumer.run("build", "--nobuild", "//:left_lazy_wheel")
    consumer.run("build", "--output_groups=root", "//:left_libmha_fwd_lazy")
    root = consumer.workspace / "bazel-bin/share/qola/left/libmha_fwd"
    rows = [line.split("\t") for line in (root / "kernels.index").read_text().splitlines()]
    kernels = [row for row in rows if row[0] == "kernel"]
    assert 1 <= len(kernels) <= 4
    for _, name, arch, package, *_ in kernels:
        assert arch == "gfx950"
        assert (root / f"src/{package}/{name}.cpp").is_file()
    for row in rows:
        if row[0] == "header":
            assert (root / row[2]).is_file()
    assert "external/" not in (root / "kernels.index").read_text()


def test_editors_know_how_files_are_compiled(consumer: Bazel) -> None:
    """Prevents: compile_commands.json has paths or flags that work only in Bazel's sandbox."""
    shared = replace(consumer, environment={"QOLA_BAZEL": str(shared_bazel())})
    shared.run("run", "@qola//tools/compile_commands", "--", "//...")
    text = (consumer.workspace / "compile_commands.json").read_text(encoding="utf-8")
    entries = json.loads(text)
    files = [Path(entry["directory"], entry["file"]) for entry in entries]
    # Generated files exist only after their build.
    generated = consumer.output_base / "execroot"
    assert [f for f in files if not f.is_file() and not f.is_relative_to(generated)] == []
    by_name: dict[str, list[dict[str, Any]]] = {}
    for file, entry in zip(files, entries, strict=True):
        by_name.setdefault(file.name, []).append(entry)
    assert len(by_name["ask.cpp"]) == 2
    kernels = [name for name in by_name if name.startswith("fmha_fwd_d32_")]
    assert 1 <= len(kernels) <= 4
    # To parse a kernel instance takes half a minute; to find its headers takes a second.
    for name, option in (("main.cpp", "-fsyntax-only"), (kernels[0], "-M"), ("ask.cpp", "-M")):
        entry = by_name[name][0]
        command = [option if word == "-c" else word for word in entry["arguments"]]
        output_of(command, cwd=entry["directory"])


def test_another_repository_compiles_nothing(consumer: Bazel) -> None:
    """Prevents: a consumer's name, path or compiler options cause cache misses."""
    name, other = 'module(name = "qola_consumer")', 'module(name = "another", version = "2.0")'
    with (
        bazel(directory=shared_directory("elsewhere")) as elsewhere,
        elsewhere.rewritten("MODULE.bazel", name, other),
    ):
        elsewhere.run("clean")
        spawns = elsewhere.spawns("//...")
        runners = count_spawns(spawns)
        assert {runner for _, runner in runners} == {HIT}, runners
        assert runners["CppCompile", HIT] >= 6
        # `qola report` reads compiles from the log: the names of kernels must be those of the plan.
        plans = [elsewhere.plan(manifest) for manifest in ("left", "right")]
        planned = {n for plan in plans for m in plan.modules for n in plan.compiled_as(m)}
        reported = summarize_log(spawns).compiles
        assert reported.keys() == planned | {"ask.cpp"}
        assert {compile_result.source for compile_result in reported.values()} == {"disk cache"}

        # The consumer's options apply only to its code: kernels, dispatches and entry points keep
        # their cache keys.
        elsewhere.run("clean")
        flags = ["--copt=-g", "--cxxopt=-DOWN", "--features=own", "--action_env=OWN=1", "-c", "dbg"]
        runners = elsewhere.runners(*flags, "//:left_libmha_fwd", "//:right_libmha_fwd")
        mnemonics = ("CppCompile", "QolaCompile")
        ran = {pair for pair in runners if pair[0] in mnemonics}
        assert ran == {(mnemonic, HIT) for mnemonic in mnemonics}, runners
