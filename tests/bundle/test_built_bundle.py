"""The forward bundle: its files, a consumer, and reproducible bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from spdx_tools.spdx.model import RelationshipType
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

ROOT = Path(__file__).resolve().parents[2]
# Resolved from a file in the bundle: sandboxes contain symlinks to the built files.
BUNDLE = Path(os.environ["QOLA_TEST_BUNDLE"], "manifest.json").resolve().parent
TAR = Path(os.environ["QOLA_TEST_TAR"]).resolve()
LIBRARY = Path(os.environ["QOLA_TEST_LIBRARY"]).resolve()
PLAN_FILE = Path(os.environ["QOLA_TEST_PLAN"]).resolve()
PLAN: dict[str, Any] = json.loads(PLAN_FILE.read_text(encoding="utf-8"))
ROCM_FILE = Path(os.environ["QOLA_TEST_ROCM"]).resolve()
ROCM: dict[str, Any] = json.loads(ROCM_FILE.read_text(encoding="utf-8"))
RECORD: dict[str, Any] = json.loads((BUNDLE / "manifest.json").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads(
    (ROOT / "qola/bundle/manifest.schema.json").read_text(encoding="utf-8")
)

LLVM = Path(os.environ["QOLA_TEST_LLVM"]).resolve().parent
# The compiler of the bundle's users.
HIPCC = shutil.which("hipcc") or "/opt/rocm/bin/hipcc"
MAIN = """
#include <cstdio>
float ask(const char* dtype, int hdim, bool only_check_v3);
int main() { std::printf("%g\\n", static_cast<double>(ask("fp16", 4096, false))); }
"""
AS_HOST = ["-x", "hip", "--offload-host-only", "-std=c++20", "-w"]


def content(directory: Path) -> dict[str, str]:
    """Return the digest of each file below a directory."""
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_layout() -> None:
    """Prevents: a bundle lacks files, has additional files, or contains symlinks."""
    found = content(BUNDLE)
    top_level = {name.split("/")[0] for name in found}
    assert top_level == {"include", "lib", "licenses", "manifest.json", "sbom.spdx.json"}
    assert [n for n in found if n.startswith("lib/")] == [
        "lib/ci_libmha_fwd.so",
        "lib/cmake/qola/qola-config-version.cmake",
        "lib/cmake/qola/qola-config.cmake",
        "lib/cmake/qola/qola-mha_fwd.cmake",
        "lib/cmake/qola/qola-targets.cmake",
        "lib/pkgconfig/qola-mha-fwd.pc",
    ]
    library = BUNDLE / "lib/ci_libmha_fwd.so"
    assert library.read_bytes() == LIBRARY.read_bytes()
    assert PLAN["configs"] == []
    assert not [path for path in BUNDLE.rglob("*") if path.is_symlink()]


def test_licenses() -> None:
    """Prevents: a missing or wrong license text."""
    for component in ("aiter", "composable_kernel", "qola"):
        text = (BUNDLE / "licenses" / component / "LICENSE").read_text(encoding="utf-8")
        assert "Permission is hereby granted" in text
        assert ("Advanced Micro Devices" in text) == (component != "qola")


def hipcc(*args: str, cwd: Path) -> str:
    run = subprocess.run([HIPCC, *args], cwd=cwd, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_consumer_needs_only_the_bundle_and_hip(tmp_path: Path) -> None:
    """Prevents: a bundle lacks a header, or its library cannot be linked."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(BUNDLE, moved)
    work = tmp_path / "work"
    work.mkdir()
    shutil.copyfile(ROOT / "examples/bazel/ask.cpp", work / "ask.cpp")
    (work / "main.cpp").write_text(MAIN)
    include = f"-I{moved / 'include'}"
    for name in ("ask", "main"):
        hipcc(*AS_HOST, "-DASK=ask", include, "-c", f"{name}.cpp", "-o", f"{name}.o", cwd=work)
    library = str(moved / "lib/ci_libmha_fwd.so")
    rpath = f"-Wl,-rpath,{moved / 'lib'}"
    hipcc("ask.o", "main.o", library, rpath, "-o", "consumer", cwd=work)
    run = subprocess.run([work / "consumer"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert float(run.stdout) < 0


def test_bundle_has_only_necessary_headers(tmp_path: Path) -> None:
    """Prevents: include/ contains all of AITER or CK, or headers of the dispatch sources."""
    (tmp_path / "user.cpp").write_text('#include "qola_mha_fwd.h"\n#include "qola_fmha.hpp"\n')
    include = BUNDLE / "include"
    rule = hipcc(*AS_HOST, f"-I{include}", "-M", "user.cpp", cwd=tmp_path)
    read = {os.path.realpath(word) for word in rule.replace("\\\n", " ").split()[1:]}
    shipped = {str(path) for path in include.rglob("*") if path.is_file()}
    assert len(shipped) > 100
    assert sorted(shipped - read) == []


def test_manifest_json_matches_its_schema() -> None:
    """Prevents: manifest.json does not match the published schema."""
    Draft202012Validator.check_schema(SCHEMA)
    validator = Draft202012Validator(SCHEMA)
    assert [error.message for error in validator.iter_errors(RECORD)] == []
    assert not validator.is_valid({**RECORD, "aiter_root": "/home/builder/aiter"})
    assert not validator.is_valid({k: v for k, v in RECORD.items() if k != "inputs"})


def keys_in(value: Any) -> set[str]:
    """Return all keys of nested data, except names of directions."""
    if isinstance(value, list):
        return set().union(*map(keys_in, value))
    if not isinstance(value, dict):
        return set()
    keys = {key for key in value if key not in ("fwd", "fwd_splitkv", "batch_prefill", "bwd")}
    return keys.union(*map(keys_in, value.values()))


def test_every_key_is_documented() -> None:
    """Prevents: docs/guide/bundle.md lacks a key of manifest.json."""
    text = (ROOT / "docs/guide/bundle.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(?:aiter\.)?(\w+)`", text.split("## manifest.json")[1]))
    assert keys_in(RECORD) - documented == set()


def test_manifest_json_matches_the_files() -> None:
    """Prevents: digests, sizes, kernels or symbols in manifest.json differ from the files."""
    found = content(BUNDLE)
    (module,) = RECORD["modules"]
    library = BUNDLE / module["library"]
    assert module["sha256"] == found[module["library"]]
    assert module["size"] == library.stat().st_size
    assert RECORD["inputs"]["plan"]["sha256"] == content(PLAN_FILE.parent)[PLAN_FILE.name]
    names = [PLAN["kernels"][index]["name"] for index in PLAN["modules"][0]["kernels"]]
    assert module["kernels"] == {"fwd": {"count": len(names), "names": sorted(names)}}
    assert module["entry_points"] == ["qola::ci::mha_fwd"]
    listed = subprocess.run(
        [f"{LLVM}/llvm-nm", "--dynamic", "--defined-only", "--demangle", str(library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    def without_spaces(names: list[str]) -> list[str]:
        # The demanglers differ: "> >" and ">>".
        return sorted(name.replace(" ", "") for name in names)

    llvm = [line.split(" ", 2)[2].split("@")[0] for line in listed.splitlines()]
    assert without_spaces(module["symbols"]) == without_spaces(llvm)
    assert module["md_name"] == library.stem
    assert RECORD["gpu_archs"] == ";".join(PLAN["archs"])
    assert RECORD["summary"] == {"total": 1, "success": 1, "failed": 0}


def test_files_do_not_depend_on_the_build_machine() -> None:
    """Prevents: distributed files contain a path, a time or a user name."""
    for name in (
        *("manifest.json", "sbom.spdx.json", "include/qola_config.h"),
        *("lib/cmake/qola/qola-config.cmake", "lib/pkgconfig/qola-mha-fwd.pc"),
    ):
        text = (BUNDLE / name).read_text(encoding="utf-8")
        for leak in (str(Path.home()), "execroot", "external/", "bazel-out", "/tmp/"):
            assert leak not in text, f"{name}: {leak}"
    assert RECORD["generated_at"] is None


def test_sbom_is_valid_and_complete() -> None:
    """Prevents: tools reject the SBOM, or it lists missing or wrong files."""
    document = parse_file(str(BUNDLE / "sbom.spdx.json"))
    assert validate_full_spdx_document(document) == []
    sha256 = {
        file.name.removeprefix("./"): checksum.value
        for file in document.files
        for checksum in file.checksums
        if checksum.algorithm.name == "SHA256"
    }
    # manifest.json is not listed: `qola build` replaces it by the record of its run.
    not_listed = ("manifest.json", "sbom.spdx.json")
    assert sha256 == {k: v for k, v in content(BUNDLE).items() if k not in not_listed}
    packages = {package.spdx_id: package for package in document.packages}
    assert {p.name for p in packages.values()} == {
        "forward",
        "qola",
        "AITER",
        "Composable Kernel",
        "ROCm HIP",
    }
    source = RECORD["inputs"]["aiter"]["source"]
    assert source["sha256"] in {c.value for c in packages["SPDXRef-aiter"].checksums}
    library = next(f.spdx_id for f in document.files if f.name.endswith(".so"))
    origins = {
        str(r.related_spdx_element_id)
        for r in document.relationships
        if r.spdx_element_id == library and r.relationship_type is RelationshipType.GENERATED_FROM
    }
    assert origins == {"SPDXRef-aiter", "SPDXRef-composable-kernel", "SPDXRef-qola"}


def test_tar_file_has_only_the_bundle() -> None:
    """Prevents: a tar file contains owners, times or absolute paths, or other files."""
    digests = {}
    with tarfile.open(TAR, "r:") as archive:
        members = archive.getmembers()
        for member in members:
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            assert member.mtime == 0
            library = member.name.endswith(".so")
            assert member.mode == (0o755 if member.isdir() or library else 0o644)
            if file := archive.extractfile(member):
                digests[member.name] = hashlib.sha256(file.read()).hexdigest()
    assert digests == {f"forward/{name}": digest for name, digest in content(BUNDLE).items()}
    assert all(m.name == "forward" or m.name.startswith("forward/") for m in members)


def rebuild(root: Path, *, umask: int, seed: str, time: int) -> tuple[Path, Path]:
    """Build the bundle and its tar file again, in another directory and environment."""
    sources = {
        "tree/LICENSE": BUNDLE / "licenses/aiter/LICENSE",
        "tree/3rdparty/composable_kernel/LICENSE": BUNDLE / "licenses/composable_kernel/LICENSE",
        "LICENSE": BUNDLE / "licenses/qola/LICENSE",
        "headers": BUNDLE / "include",
        "ci_libmha_fwd.so": LIBRARY,
        "plan.json": PLAN_FILE,
        "rocm.json": ROCM_FILE,
    }
    for name, source in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    origin = RECORD["inputs"]["aiter"]["source"]
    (root / "tree/AITER.json").write_text(json.dumps(origin))

    def below(directory: str) -> list[str]:
        files = [p for p in (root / directory).rglob("*") if p.is_file()]
        return sorted(p.relative_to(root).as_posix() for p in files)

    inputs = {
        "name": "forward",
        "libraries": [{"path": "ci_libmha_fwd.so", "include_dirs": ["headers"], "packs": {}}],
        "headers": below("headers"),
        "plan": "plan.json",
        "tree": "tree",
        "configs": below("tree/aiter/configs"),
        "license_files": ["tree/3rdparty/composable_kernel/LICENSE", "tree/LICENSE"],
        "qola_license": "LICENSE",
        "rocm": "rocm.json",
        "generated_at": "",
        "archs": RECORD["archs"],
        "lazy": None,
        "static": None,
        "triton": None,
        "torch": None,
        "names": [],
    }
    (root / "inputs.json").write_text(json.dumps(inputs))
    for path in root.rglob("*"):
        os.utime(path, (time, time))
    env = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path))),
        "TZ": f"UTC{seed}",
    }

    def run(*args: str) -> None:
        command = [sys.executable, "-m", "qola.bundle", *args]
        subprocess.run(command, cwd=root, env=env, umask=umask, check=True)

    run("build", "--inputs", "inputs.json", "--output", "out")
    for path in (root / "out").rglob("*"):
        os.utime(path, (time, time))
    run("archive", "--directory", "out", "--prefix", "forward", "--output", "out.tar")
    return root / "out", root / "out.tar"


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A rebuilt bundle and its tar file."""
    directory = tmp_path_factory.mktemp("one")
    return rebuild(directory / "one", umask=0o077, seed="1", time=1_000_000_000)


@pytest.mark.thorough
def test_bundle_is_reproducible(rebuilt: tuple[Path, Path], tmp_path: Path) -> None:
    """Prevents: a bundle depends on path, umask, hash seed, time zone or time stamps."""
    second = rebuild(tmp_path / "a" / "second", umask=0o002, seed="2", time=1_700_000_000)
    assert content(rebuilt[0]) == content(second[0])
    assert rebuilt[1].read_bytes() == second[1].read_bytes()
    # Only the SBOM differs: it contains the origin of headers, which this test replaces.
    again, built = content(rebuilt[0]), content(BUNDLE)
    assert again.keys() == built.keys()
    assert {name for name in built if again[name] != built[name]} <= {"sbom.spdx.json"}
