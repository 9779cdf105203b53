"""Build AMD's unchanged examples with rules_hip, and run their checks on the emulator.

QOLA_TEST_ROCM_EXAMPLES names a checkout. If it is not set, git fetches the pinned commit.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tests.e2e.nested_bazel import QOLA, bazel, check_out

REMOTE = "https://github.com/ROCm/rocm-examples"
COMMIT = "7dfb7d402794c33031be2847eaa06ee6732f07cb"

#: Examples of one file, by their directory. convolution and matrix_multiplication are omitted: they
#: take minutes on the emulator.
SINGLE = (
    *("saxpy", "shared_memory", "bit_extract", "warp_shuffle", "dynamic_shared", "device_globals"),
    *("streams", "events", "moving_average", "cooperative_groups", "hello_world", "occupancy"),
)
APPLICATIONS = ("bitonic_sort", "floyd_warshall", "histogram", "prefix_sum")

_HEAD = """
load("@rules_hip//hip:defs.bzl", "hip_code_object", "hip_library", "hip_test")
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(name = "common", hdrs = glob(["Common/*.hpp"]), includes = ["Common"])
"""

_SINGLE = """
hip_test(
    name = "{name}",
    srcs = ["{directory}/{name}/main.hip"],
    archs = ["gfx942"],
    deps = [":common"],
)
"""

_OTHERS = """
hip_library(
    name = "device_library",
    srcs = ["HIP-Basic/static_device_library/library/library.hip"],
    hdrs = ["HIP-Basic/static_device_library/library/library.hpp"],
    archs = ["gfx942"],
    includes = ["HIP-Basic/static_device_library/library"],
    rdc = True,
)

hip_test(
    name = "static_device_library",
    srcs = ["HIP-Basic/static_device_library/main.hip"],
    archs = ["gfx942"],
    rdc = True,
    deps = [":common", ":device_library"],
)

hip_code_object(
    name = "module",
    srcs = ["HIP-Basic/module_api/module.hip"],
    archs = ["gfx942"],
)

# The program searches the file in its own directory.
genrule(
    name = "module_file",
    srcs = [":module"],
    outs = ["module.co"],
    cmd = "for file in $(SRCS); do case $$file in *.hsaco) cp $$file $@ ;; esac; done",
)

hip_test(
    name = "module_api",
    srcs = ["HIP-Basic/module_api/main.hip"],
    archs = ["gfx942"],
    copts = ["-std=c++17"],
    data = [":module_file"],
    deps = [":common"],
)
"""

NAMES = (*SINGLE, *APPLICATIONS, "static_device_library", "module_api")


def build_file() -> str:
    """Return the BUILD file for the root of the examples."""
    parents = dict.fromkeys(SINGLE, "HIP-Basic") | dict.fromkeys(APPLICATIONS, "Applications")
    tests = [_SINGLE.format(name=name, directory=parent) for name, parent in parents.items()]
    return "".join([_HEAD, *tests, _OTHERS])


def checkout(directory: Path) -> Path:
    """Return a directory with the examples. Skip the test if there is no network."""
    if path := os.environ.get("QOLA_TEST_ROCM_EXAMPLES"):
        return Path(path)
    check_out(directory, REMOTE, COMMIT)
    return directory


def test_examples(tmp_path: Path) -> None:
    """Prevents: rules_hip and the emulator work only for programs of this repository."""
    source = checkout(tmp_path)
    with bazel(QOLA / "rules_hip/examples/hip") as nested:
        for name in ("HIP-Basic", "Applications", "Common"):
            shutil.copytree(source / name, nested.workspace / name)
        nested.write("BUILD.bazel", build_file())
        targets = [f"//:{name}" for name in NAMES]
        options = ("--@rules_hip//hip:run=emulated", "--keep_going", "--test_output=errors")
        result = nested.run("test", *options, *targets, check=False)
    passed = re.findall(r"^//:(\w+) .*PASSED", result.stdout, re.M)
    assert sorted(passed) == sorted(NAMES), result.stdout + result.stderr
