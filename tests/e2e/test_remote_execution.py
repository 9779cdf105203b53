"""Remote execution: a consumer on a real server, whose workers have only /bin/sh.

A remote action can read only its declared inputs. The tests compile a tiny kernel; with
QOLA_TEST_CK they compile a kernel of Composable Kernel, which takes minutes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from qola.report.execution_log import Spawn
from tests.e2e.nested_bazel import QOLA, Bazel, bazel
from tools.remote.programs import Programs, unpacked
from tools.remote.reapi import Server, reapi_server

# Platform properties of every action, local or remote.
PROPERTIES = {"ISA": "x86-64", "OSFamily": "linux"}
TARGETS = """
load("@rules_hip//hip:defs.bzl", "hip_library")
load("@rules_hip//rocm:rocm_files.bzl", "rocm_files")
load("@rules_cc//cc:defs.bzl", "cc_shared_library")

rocm_files(
    name = "kernel",
    srcs = ["{kernel}", ":made/scale/pair.object"],
)

rocm_files(
    name = "broken_kernel",
    srcs = [":made/scale/odd_pair.object"],
)

cc_shared_library(
    name = "linked.shared",
    shared_lib_name = "liblinked.so",
    deps = ["{kernel}"],
)

rocm_files(
    name = "linked",
    srcs = ["linked.shared"],
)

hip_library(
    name = "relocatable",
    srcs = ["relocatable.hip"],
    archs = ["gfx950"],
    rdc = True,
)

hip_library(
    name = "hip",
    archs = ["gfx950"],
    deps = [":relocatable"],
)

cc_library(
    name = "answer",
    srcs = ["answer.cpp"],
    copts = ["--offload-host-only"],
    linkstatic = True,
)

cc_binary(
    name = "ask_answer",
    srcs = ["ask_answer.cpp"],
    copts = ["--offload-host-only"],
    deps = [":answer"],
)
"""
#: The ROCm toolchain compiles the C++ of this test, because workers have it.
HIP_CONFIG = (
    "build --platforms=@rules_hip//rocm:linux_x86_64",
    "build --extra_toolchains=@rules_hip//rocm:toolchain",
)
TINY = """
load("@qola//rules/private:generated.bzl", "header_set", "kernel_unit")

header_set(name = "headers", headers = ["scale.hpp"], include_dirs = ["."], tree = "scale.hpp")

# Without ROCm's headers, which cost more than this kernel.
kernel_unit(
    name = "made/scale",
    batches = {"odd_pair": ["tiny", "broken"], "pair": ["tiny", "tinier"]},
    copts = ["-nogpuinc"],
    directory = "made",
    headers = ":headers",
    kernels = {"broken": ["gfx950"], "tinier": ["gfx950"], "tiny": ["gfx950"]},
)
"""
FILES = {
    "answer.cpp": "int answer() { return 41; }\n",
    "ask_answer.cpp": "int answer();\nint main() { return answer() != 41; }\n",
    "made/kernels/batches/odd_pair.cpp": '#include "../tiny.cpp"\n#include "../broken.cpp"\n',
    "made/kernels/batches/pair.cpp": '#include "../tiny.cpp"\n#include "../tinier.cpp"\n',
    "made/kernels/broken.cpp": "#error does not fit\n",
    "relocatable.hip": "#include <hip/hip_runtime.h>\n__global__ void nothing() {}\n",
    "scale.hpp": """#pragma once
inline __attribute__((device)) float scale(float x) { return 2 * x; }
""",
    "made/kernels/tinier.cpp": """#include "scale.hpp"
__attribute__((device)) float tinier(float x) { return scale(scale(x)); }
""",
    "made/kernels/tiny.cpp": """#include "scale.hpp"
__attribute__((device)) float tiny(float x) { return scale(x); }
""",
}


@pytest.fixture(scope="module")
def packages() -> tuple[Path, Path]:
    """Directories of buildbox and nginx."""
    return (
        unpacked("buildbox", os.environ["QOLA_BUILDBOX"]),
        unpacked("nginx", os.environ["QOLA_NGINX"]),
    )


@pytest.fixture(scope="module")
def isolated(packages: tuple[Path, Path]) -> bool:
    """Return whether this machine lets a user isolate a process."""
    probe = [*Programs(packages[0]).command("bwrap"), "--ro-bind", "/", "/", "/bin/true"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def server(
    packages: tuple[Path, Path], isolated: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("remote")
    with reapi_server(*packages, directory, jobs=2, isolated=isolated) as running:
        yield running


@pytest.fixture(scope="module")
def consumer() -> Iterator[Bazel]:
    """The consumer with --config=rbe of qola's .bazelrc, and a target of one kernel instance."""
    with bazel() as instance:
        lines = (QOLA / ".bazelrc").read_text(encoding="utf-8").splitlines()
        config = [line for line in lines if line.startswith("build:rbe ")]
        with (instance.workspace / ".bazelrc").open("a", encoding="utf-8") as file:
            file.write("\n".join(["", *config, *HIP_CONFIG, ""]))
        with (instance.workspace / "MODULE.bazel").open("a", encoding="utf-8") as file:
            file.write('bazel_dep(name = "rules_hip", version = "0.1.0")\n')
        kernel = find_ck_kernel(instance) if os.environ.get("QOLA_TEST_CK") else ":made/scale/tiny"
        with (instance.workspace / "BUILD.bazel").open("a", encoding="utf-8") as file:
            file.write(TARGETS.format(kernel=kernel) + TINY)
        for name, text in FILES.items():
            instance.write(name, text)
        yield instance


def find_ck_kernel(consumer: Bazel) -> str:
    kernels = consumer.run("query", "filter('/fwd/.*_gfx950$', kind(cc_library, @qola_left//:all))")
    return min(kernels.stdout.split())


def remote(server: Server) -> list[str]:
    # Bazel would not execute an action that a local cache answers.
    return ["--config=rbe", f"--remote_executor={server.address}", "--disk_cache="]


def compiles(spawns: list[Spawn]) -> list[Spawn]:
    return [spawn for spawn in spawns if spawn.mnemonic.startswith("Qola")]


def digests(spawns: list[Spawn]) -> dict[str, str]:
    return {path: digest for spawn in spawns for path, digest in spawn.outputs.items()}


def test_a_kernel_compiled_on_a_worker_is_the_same(consumer: Bazel, server: Server) -> None:
    """Prevents: a worker cannot compile a kernel, or compiles it to other bytes."""
    consumer.run("clean")
    there = compiles(consumer.spawns(*remote(server), "//:kernel"))
    assert {spawn.mnemonic for spawn in there} == {"QolaCompile"}
    assert {spawn.runner for spawn in there} == {"remote"}
    assert all(spawn.properties == PROPERTIES for spawn in there)
    consumer.run("clean")
    here = compiles(consumer.spawns("//:kernel"))
    assert {spawn.runner for spawn in here}.isdisjoint({"remote", "remote cache hit"})
    assert any(path.endswith(".pic.o") for path in digests(here))
    assert digests(here) == digests(there)


def test_a_hip_library_built_on_a_worker_is_the_same(consumer: Bazel, server: Server) -> None:
    """Prevents: compiling HIP sources or linking device code needs local files."""
    built = {}
    for where, flags in (("here", []), ("there", remote(server))):
        consumer.run("clean")
        built[where] = compiles(consumer.spawns(*flags, "//:hip"))
    assert {spawn.mnemonic for spawn in built["there"]} == {"QolaCompile", "QolaDeviceLink"}
    assert {spawn.runner for spawn in built["there"]} == {"remote"}
    assert digests(built["here"]) == digests(built["there"])


def test_a_broken_kernel_is_named_by_a_worker(consumer: Bazel, server: Server) -> None:
    """Prevents: a worker's compile error needs a missing program or names no kernel."""
    failed = consumer.failure(*remote(server), "//:broken_kernel")
    assert "qola: kernel instance broken does not compile" in failed
    assert "not found" not in failed
    assert "kernel instance tiny does" not in failed


def test_a_library_linked_on_a_worker_is_the_same(consumer: Bazel, server: Server) -> None:
    """Prevents: a library is linked locally, or a worker links other bytes."""
    links = {}
    for where, flags in (("here", []), ("there", remote(server))):
        consumer.run("clean")
        spawns = consumer.spawns(*flags, "//:linked")
        (links[where],) = [spawn for spawn in spawns if spawn.mnemonic == "CppLink"]
    assert links["there"].runner == "remote"
    assert links["here"].runner != "remote"
    assert digests([links["here"]]) == digests([links["there"]])


def test_evicted_objects_are_built_again(
    consumer: Bazel, packages: tuple[Path, Path], isolated: bool, tmp_path: Path
) -> None:
    """Prevents: a build fails because the server evicted an object."""
    with reapi_server(*packages, tmp_path / "server", isolated=isolated) as server:
        consumer.run("build", *remote(server), "//:answer")
        for blob in server.storage.glob("*/objects/*/*"):
            blob.unlink()
        result = consumer.run("build", *remote(server), "//:ask_answer")
    assert "retrying the build" in result.stderr
