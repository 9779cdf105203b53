"""Run qola build as a user of ROCm/QoLA does, with a real Bazel and a real compiler."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zipfile

import pytest

from tests.bundle.project import Project, succeeds
from tests.e2e.nested_bazel import (
    LEFT,
    PIN,
    QOLA,
    User,
    check_sbom,
    disk_cache_option,
    user_disk_cache,
)
from tests.support.running import output_of

GOOD = LEFT.replace('name = "libmha_fwd"', 'name = "libmha_fwd"\ngroup = "good"')

# The kernels of this module fail to compile quickly: a header is missing.
BROKEN = """
[[modules]]
name = "libmha_bwd"
receipt = 700
group = "broken"
add_flags_extra_hip = ["-includeno_such_header.h"]

[[mha_bwd_variants]]
dtype = "fp16"
hdim = 32
mode = "batch"
has_mask = false
has_bias = false
has_alibi = false
has_dbias = false
has_dropout = false
deterministic = false
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A directory with a manifest of one good module and one module that does not compile."""
    directory = tmp_path_factory.mktemp("user")
    (directory / "two.toml").write_text(GOOD + BROKEN, encoding="utf-8")
    return User(directory)


def test_one_broken_module(user: User) -> None:
    """Prevents: a broken module discards a good library, or a wheel omits the broken module."""
    earlier = user.directory / "out/lib/left_libmha_bwd.so"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("of an earlier build")
    run = user.build("two.toml", "--wheel", "1.2.3", code=7)
    lines = run.stdout.splitlines()
    assert lines[0].startswith("left_libmha_fwd: built, ")
    assert lines[1].startswith("left_libmha_bwd: failed, ")
    assert lines[2] == "Build complete: 1/2 succeeded, 1 failed."
    # Each kernel instance of the batch includes the missing header.
    assert re.match(r"  FAILED: left_libmha_bwd: fmha_bwd_\w+ and \d+ more of ", lines[3])
    assert "'no_such_header.h' file not found" in lines[4]
    assert re.search(r"^qola: \d+ of \d+ kernels, \d+ from cache", run.stderr, re.MULTILINE)
    assert "Analyzed" not in run.stderr, "Bazel's output belongs in bazel.log"
    assert not earlier.exists(), "an old library looks like a new one"
    assert earlier.with_name("left_libmha_bwd.so.previous").is_file()
    assert (earlier.parent / "pkgconfig/qola-mha-fwd.pc").is_file()
    library = user.directory / "out/lib/left_libmha_fwd.so"
    assert library.read_bytes()[:4] == b"\x7fELF"
    record = json.loads((user.directory / "out/manifest.json").read_text())
    assert record["summary"] == {"total": 2, "success": 1, "failed": 1}
    assert record["gpu_archs"] == "gfx950"
    # The files of a QoLA output directory, and those of a bundle.
    parts = {path.name for path in (user.directory / "out").iterdir()}
    assert {"lib", "include", "licenses", "sbom.spdx.json"} <= parts
    assert record["generated_at"]
    assert record["inputs"]["manifest"]["sha256"]
    assert "found     failed: libmha_bwd\n" in record["bundle_error"]
    assert record["bundle_error"] in run.stderr
    assert not (user.directory / "out/dist").exists(), "a wheel without the failed module"
    check_sbom(user.directory / "out")
    good, bad = record["modules"]
    assert (good["success"], good["so_path"]) == (True, str(library))
    assert good["size"] == library.stat().st_size
    assert (bad["success"], bad["so_path"]) == (False, None)
    assert any(name.startswith("fmha_bwd_d32_") for name in bad["failed"]), bad["failed"]


def test_called_from_python(user: User) -> None:
    """Prevents: Python callers break; `groups` builds other modules."""
    program = f"""
import json, sys
from qola import BuildOptions, BuildRequest, BuildSpec, Forms, build_kernels
request = BuildRequest("two.toml", BuildSpec(("gfx950",), "cpp_itfs"), groups=("good",),
                       forms=Forms(static=True))
options = BuildOptions(more=("--disk_cache={user_disk_cache()}",))
result = build_kernels(request, "from_python", options)
json.dump(result, sys.stdout)
"""
    run = user.start(sys.executable, "-c", program)
    result = json.loads(run.stdout)
    assert result == json.loads((user.directory / "from_python/manifest.json").read_text())
    assert [module["md_name"] for module in result["modules"]] == ["left_libmha_fwd"]
    archive = user.directory / "from_python" / result["static"]["path"]
    assert archive.name == "libqola_left.a"
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == result["static"]["sha256"]
    headers = sorted(path.name for path in (user.directory / "from_python/include").iterdir())
    assert {"qola_common.h", "qola_config.h", "qola_mha_fwd.h"} <= set(headers)


def test_wheel(user: User) -> None:
    """Prevents: users need a Bazel workspace to build a wheel; the wheel has AITER's MoE tables."""
    (user.directory / "out/dist").mkdir(parents=True)
    (user.directory / "out/dist/qola_two-1.0-py3-none-any.whl").write_text("of an earlier build")
    run = user.build("two.toml", "--group", "good", "--wheel", "1.2.3")
    wheel = user.directory / "out/dist/qola_two-1.2.3-py3-none-manylinux_2_28_x86_64.whl"
    assert run.stdout.splitlines()[-1] == str(wheel)
    assert json.loads((user.directory / "out/manifest.json").read_text())["wheel"] == str(wheel)
    names = zipfile.ZipFile(wheel).namelist()
    assert "qola_two/lib/left_libmha_fwd.so" in names
    assert not [name for name in names if "configs/" in name or "libmha_bwd" in name]
    metadata = zipfile.ZipFile(wheel).read("qola_two-1.2.3.dist-info/METADATA").decode()
    assert "\nSummary: AMD GPU attention kernels as libraries, built by qola\n" in metadata
    assert f"from AITER {PIN['version']}:\n\n- lib/left_libmha_fwd.so (libmha_fwd)," in metadata
    path = output_of([sys.executable, "-m", "qola_two", "--path"], env={"PYTHONPATH": str(wheel)})
    assert path == f"{wheel}/qola_two\n"
    assert len(list(wheel.parent.iterdir())) == 2


def test_split_by_arch(user: User) -> None:
    """Prevents: device code in a library; an arch without pack or wheel; stale packs; no JAX."""
    arguments = ("two.toml", "--arch", "gfx950", "--group", "good", disk_cache_option())
    run = user.qola("build", *arguments, "-o", "split", "--split", "--wheel", "1.2.3", "--jax")
    output = user.directory / "split"
    result = json.loads((output / "manifest.json").read_text())
    wheels = [
        f"qola_two{arch}-1.2.3-py3-none-manylinux_2_28_x86_64.whl" for arch in ("", "_gfx950")
    ]
    expected = [str(output / "dist" / wheel) for wheel in wheels]
    assert [result["wheel"], *result["arch_wheels"]] == expected
    assert run.stdout.splitlines()[-2:] == expected
    (module,) = result["modules"]
    library = output / "lib/left_libmha_fwd.so"
    assert module["size"] == library.stat().st_size
    assert b"CCOB" not in library.read_bytes()
    (pack,) = module["packs"]
    assert pack["arch"] == "gfx950"
    data = (output / pack["path"]).read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (pack["size"], pack["sha256"])
    assert zipfile.ZipFile(expected[1]).read("qola_two/" + pack["path"]) == data
    jax = [any("jax" in name for name in zipfile.ZipFile(wheel).namelist()) for wheel in expected]
    assert jax == [True, False]
    check_sbom(output)
    user.qola("build", *arguments, "-o", "split")
    assert b"CCOB" in library.read_bytes()
    assert not list(output.glob("lib/*.qpack"))


def test_second_build_does_nothing(user: User) -> None:
    """Prevents: each call creates a new workspace and plans the manifest again."""
    user.build("two.toml", "--mode", "cpp_itfs", "--arch", "gfx950;gfx950", code=7)
    assert len(list((user.directory / "cache/qola/workspaces").glob("two-*"))) == 1
    (log,) = (user.directory / "cache/qola/workspaces").glob("two-*/bazel.log")
    assert re.search(r"[Aa]nalyz\w+:? 2 targets \(0 packages loaded, 0 targets", log.read_text())


def test_cmake_builds_the_requested_components(user: User) -> None:
    """Prevents: qola.cmake builds nothing, finds no library, or keeps an old build."""
    environ = {**user.environment(), "QOLA_BUILD_GROUPS": "good"}
    project = Project(
        QOLA / "tests/bundle/helper",
        user.directory / "cmake",
        (f"-DQOLA_PROGRAM={sys.executable};-m;qola",),
        {**environ, "QOLA_CMAKE_DIR": str(QOLA / "qola/cmake")},
    )
    manifest = user.directory / "two.toml"
    arguments = f"MANIFEST;{manifest};COMPONENTS;mha_fwd;ARCHS;gfx950"
    output_text = succeeds(project.configure(f"-DARGUMENTS={arguments}"))
    assert "left_libmha_fwd: built, " in output_text
    output = project.build / "qola"
    assert f"-- qola: {output}: qola 0.1.0, gfx950, AITER 0.1.7" in output_text
    assert "-- libraries: qola::mha_fwd\n" in output_text
    assert "left_libmha_fwd" not in project.make()
    with manifest.open("a", encoding="utf-8") as file:
        file.write("# Edited.\n")
    assert "left_libmha_fwd: built, " in project.make()


def test_lazy_build_and_a_pack(user: User) -> None:
    """Prevents: a lazy bundle lacks files of its program, or the program ignores a pack of qola."""
    arguments = ("-m", "two.toml", "--group", "good", disk_cache_option())
    user.qola("build", *arguments, "-o", "lazy", "--lazy")
    record = json.loads((user.directory / "lazy/manifest.json").read_text())
    assert record["lazy"] is True
    assert [module["library"] for module in record["modules"]] == ["lib/left_libmha_fwd.so"]
    check_sbom(user.directory / "lazy")
    program = user.directory / "lazy/bin/qola-kernels"
    listed = user.start(program, "list", "--format", "list")
    first, *others = listed.stdout.splitlines()
    failed = user.qola(
        "pack", *arguments, "--output", "x.qpack", "nobody", first.split()[0], code=2
    )
    assert "no such kernel instance" in failed.stderr
    assert not (user.directory / "x.qpack").exists()
    (user.directory / "wanted").write_text(f"{first}\n")
    packs = "lazy/share/qola/left/packs"
    pack = (*arguments, "--output", f"{packs}/x.qpack", "--list", "wanted")
    packed = user.qola("pack", *pack)
    assert packed.stdout.startswith(f"{packs}/x.qpack: ")
    # The program finds the kernel that Bazel compiled by its key.
    states = user.start(program, "list").stdout.splitlines()
    assert states[0].startswith(f"{first}  pack ")
    assert [line.split("  ")[1] for line in states[1:]] == ["not there yet"] * len(others)


def test_errors_before_the_build(user: User) -> None:
    """Prevents: an unspecific exit code; an error overwrites a good result."""
    record = (user.directory / "out/manifest.json").read_text()
    user.build("two.toml", "--arch", "gfx90", code=6)
    user.build("two.toml", "--arch", "native", code=5)
    user.build("two.toml", "--aiter-root", "absent", "--skip-checkout", code=3)
    rocm = user.build("two.toml", "--bazel-arg=--repo_env=QOLA_ROCM=/no/rocm/here", code=5)
    assert rocm.stderr.count("no ROCm compiler on this machine") == 1
    (user.directory / "wrong.toml").write_text("[[module]]\n")
    wrong = user.qola("build", "--manifest", "wrong.toml", "--output-dir", "out", code=2)
    assert "wrong.toml:1" in wrong.stderr
    user.qola("build", "--output-dir", "out", code=2)
    assert (user.directory / "out/manifest.json").read_text() == record
