"""Other ways to depend on qola: two AITERs, the consumer's ROCm toolchain, the next Bazel.

Nothing is compiled: the analysis reports the kernels and the compiler of each action. The tests
analyse each module with qola's checkout and with its release archive.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import (
    PIN,
    QOLA,
    Bazel,
    bazel,
    overrides,
    shared_directory,
    unpack_release,
)

HERE = Path(__file__).resolve().parent

#: Defaults of Bazel 8, 9 and 10 that the Bazel of these tests supports as options.
NEWER_BAZELS = (
    *(
        f"--incompatible_{name}"
        for name in (
            "auto_exec_groups",
            "check_testonly_for_output_files",
            "check_visibility_for_toolchains",
            "config_setting_private_default_visibility",
            "default_to_explicit_init_py",
            "disable_native_repo_rules",
            "disable_starlark_host_transitions",
            "disallow_empty_glob",
            "modify_execution_info_additive",
            "no_implicit_file_export",
            "no_implicit_watch_label",
            "top_level_aspects_require_providers",
            "use_plus_in_repo_names",
        )
    ),
    "--noenable_workspace",
)


#: A consumer that gets its libraries from the module own_rocm and does not declare qola.
THROUGH = f"""
module(name = "through")
bazel_dep(name = "qola_own_rocm")
local_path_override(module_name = "qola_own_rocm", path = "{HERE}/own_rocm")
{overrides(QOLA)}
"""

#: Actions that build a library.
MNEMONICS = {"CppCompile", "CppLink", "QolaCompile"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release archive, unpacked."""
    return unpack_release(tmp_path_factory.mktemp("release"))


def analyse_with(instance: Bazel, archive: Path) -> None:
    """Analyse all targets with the release archive instead of the checkout."""
    with instance.rewritten("MODULE.bazel", f'path = "{QOLA}', f'path = "{archive}'):
        instance.run("build", "--nobuild", "//...")


@pytest.fixture(scope="module")
def two_pins() -> Iterator[Bazel]:
    with bazel(HERE / "two_pins") as instance:
        instance.run("build", "--nobuild", "//...")
        yield instance


@pytest.fixture(scope="module")
def own_rocm() -> Iterator[Bazel]:
    with bazel(HERE / "own_rocm", directory=shared_directory("elsewhere")) as instance:
        instance.run("build", "--nobuild", "//...")
        yield instance


def compile_and_link(instance: Bazel, target: str) -> Iterator[tuple[str, str]]:
    """Yield mnemonic, command line and environment of each action that compiles or links."""
    graph = json.loads(
        instance.run(
            *("aquery", "--output=jsonproto", "--noinclude_artifacts"),
            f'mnemonic("CppCompile|CppLink|QolaCompile", deps({target}))',
        ).stdout
    )
    labels = {target["id"]: target["label"] for target in graph["targets"]}
    for action in graph["actions"]:
        # The host compiler builds the tools of Bazel.
        if "bazel_tools" not in labels[action["targetId"]]:
            command = action["arguments"], action["environmentVariables"]
            yield action["mnemonic"], json.dumps(command)


def test_two_aiters_are_not_mixed(two_pins: Bazel, archive: Path) -> None:
    """Prevents: a library planned against one AITER contains kernels of another AITER."""
    assert PIN["sha256"] in (HERE / "two_pins/MODULE.bazel").read_text(), (
        "a new pin: write it there"
    )
    plain, patched = two_pins.plan("plain"), two_pins.plan("patched")
    assert plain.aiter.patches == ()
    assert [patch.name for patch in patched.aiter.patches] == ["kernel-header.patch"]
    digests = [{k.name: k.sha256 for k in plan.kernels} for plan in (plain, patched)]
    # Both plans have the same kernel names, with different sources.
    assert digests[0].keys() == digests[1].keys()
    assert not set(digests[0].values()) & set(digests[1].values())
    for side in ("plain", "patched"):
        source = two_pins.repository(f"qola_{side}") / patched.kernels[0].source
        assert ("// of a patched AITER" in source.read_text()) == (side == "patched")
    analyse_with(two_pins, archive)


def test_kernels_of_the_same_ck_have_the_same_keys(two_pins: Bazel, tmp_path: Path) -> None:
    """Prevents: an AITER update recompiles kernels although Composable Kernel did not change.

    The second tree has the layout of a git checkout (the wheel has everything below aiter_meta/)
    and a changed AITER header.
    """
    wheel = two_pins.repository("aiter")
    tree = tmp_path / "tree"
    tree.mkdir()
    for entry in [wheel / "aiter", *(wheel / "aiter_meta").iterdir()]:
        if entry.name != "csrc":
            (tree / entry.name).symlink_to(entry)
    shutil.copytree(wheel / "aiter_meta/csrc", tree / "csrc")
    header = tree / "csrc/include/mha_fwd.h"
    header.write_text(header.read_text(encoding="utf-8") + "// of a new AITER\n", encoding="utf-8")
    local = f'qola.aiter_local(name = "aiter_patched", path = "{tree}")\n'
    module = (two_pins.workspace / "MODULE.bazel").read_text(encoding="utf-8")
    wheel_tag = re.search(r"qola\.aiter_wheel\(.*?\n\)\n", module, re.DOTALL)
    assert wheel_tag is not None
    with (
        two_pins.rewritten("MODULE.bazel", wheel_tag[0], local),
        two_pins.rewritten("patched.toml", 'patches_dir = "patches"\n', ""),
    ):
        keys = [two_pins.kernel_keys(f"@qola_{side}//:libmha_fwd") for side in ("plain", "patched")]
        plans = [two_pins.plan(side) for side in ("plain", "patched")]
    assert keys[0]
    assert keys[0] == keys[1]
    # With these inputs, the sources are equal too.
    contents = [{k.name: k.sha256 for k in plan.kernels} for plan in plans]
    assert contents[0] == contents[1]


#: A Python interpreter that must be downloaded, registered in the way of rules_python.
ABSENT = """
absent = use_repo_rule("//absent:absent.bzl", "absent")
absent(name = "python_from_afar")
register_toolchains("//absent:toolchain")
"""
ABSENT_RULE = """
def _absent_impl(rctx):
    fail("Python is downloaded")

absent = repository_rule(_absent_impl)
"""
ABSENT_TOOLCHAIN = """
load("@rules_python//python:defs.bzl", "py_binary")
toolchain(
    name = "toolchain",
    toolchain = "@python_from_afar//:runtime",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
py_binary(name = "program", srcs = ["program.py"])
"""


def test_no_python_is_downloaded(two_pins: Bazel) -> None:
    """Prevents: a bundle, wheel or pack downloads the Python interpreter of rules_python."""
    two_pins.write("absent/absent.bzl", ABSENT_RULE)
    two_pins.write("absent/BUILD.bazel", ABSENT_TOOLCHAIN)
    two_pins.write("absent/program.py", "")
    module = (two_pins.workspace / "MODULE.bazel").read_text(encoding="utf-8")
    rules_python = 'bazel_dep(name = "rules_python", version = "0.22.1")\n'
    targets = [
        f"@qola_plain//:{name}" for name in ("bundle", "bundle_tar", "wheel", "lazy_bundle", "pack")
    ]
    with two_pins.rewritten("MODULE.bazel", module, module + rules_python + ABSENT):
        two_pins.run("build", "--nobuild", *targets, "@qola_plain//:libmha_fwd_launch_test")
        assert "Python is downloaded" in two_pins.failure("--nobuild", "//absent:program")


def test_the_consumers_toolchain_is_used(own_rocm: Bazel, archive: Path) -> None:
    """Prevents: qola compiles with its own compiler although the consumer registered another."""
    actions = list(compile_and_link(own_rocm, "//:it_libmha_fwd"))
    assert {mnemonic for mnemonic, _ in actions} >= MNEMONICS
    assert [a for a in actions if "/opt/own-rocm/" not in a[1] or "~rocm_sdk/" in a[1]] == []
    # Each cache key contains the version: after an upgrade, no cache returns old objects.
    assert all("own-rocm-1" in command for _, command in actions)
    analyse_with(own_rocm, archive)


def test_qola_as_an_indirect_dependency(own_rocm: Bazel) -> None:
    """Prevents: the host compiler builds kernels because its module is nearer to the root."""
    module = (own_rocm.workspace / "MODULE.bazel").read_text(encoding="utf-8")
    with (
        own_rocm.rewritten("MODULE.bazel", module, THROUGH),
        own_rocm.rewritten(".bazelrc", "build --@rules_hip//rocm:toolchain=//toolchain:rocm\n", ""),
    ):
        actions = list(compile_and_link(own_rocm, "@qola_own_rocm//:it_libmha_fwd"))
    assert {mnemonic for mnemonic, _ in actions} >= MNEMONICS
    assert [a for a in actions if "~rocm_sdk/" not in a[1]] == []


def test_defaults_of_newer_bazels(own_rocm: Bazel) -> None:
    """Prevents: rules that load with this Bazel fail to load or analyse with Bazel 8, 9 or 10."""
    own_rocm.run("build", "--nobuild", *NEWER_BAZELS, "//...")
