"""The static archive: its visible symbols, and its separation from a second AITER."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gfxemu.fake_hip import FakeHip, read_log
from qola.bundle.elf_versions import ElfNeeds
from qola.bundle.platform_policy import check_platform
from tests.library.symbols import of_symbol

ARCHIVE = Path(os.environ["QOLA_TEST_ARCHIVE"]).resolve()
SCHEMA = Path(__file__).resolve().parents[2] / "qola/bundle/manifest.schema.json"
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
LLVM = Path(os.environ["QOLA_TEST_LLVM"]).resolve().parent
LIBRARIES = {
    Path(path).name: Path(path).resolve() for path in os.environ["QOLA_TEST_LIBRARIES"].split()
}
PROGRAMS = {
    Path(path).name: Path(path).resolve() for path in os.environ["QOLA_TEST_PROGRAMS"].split()
}


def tool(name: str, *args: str | Path) -> str:
    """Run a program of LLVM, and return its standard output."""
    command = [str(LLVM / name), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def names(file: Path, *options: str) -> list[str]:
    """Return demangled names of symbols."""
    lines = tool("llvm-nm", "--demangle", "--just-symbol-name", "--quiet", *options, file)
    return [line for line in lines.splitlines() if line and not line.endswith(".o:")]


def filter_kernel_names(symbols: list[str]) -> list[str]:
    """Return names that another AITER or another qola library may also define."""
    substrings = ("aiter", "ck_tile", "fmha", "qola")
    return [name for name in symbols if any(substring in name for substring in substrings)]


def test_archive_exports_only_entry_points() -> None:
    """Prevents: an exported name of AITER or CK conflicts with another AITER at link time."""
    found = names(ARCHIVE, "--extern-only", "--defined-only")
    assert sorted(name.split("(")[0] for name in found if "::" in name) == [
        "qola::ci::mha_bwd",
        "qola::ci::mha_fwd",
    ]
    c_names = [name for name in found if "::" not in name]
    assert len(c_names) == 16
    assert all(name.startswith(("qola_ci_mha_bwd", "qola_ci_mha_fwd")) for name in c_names)


def test_archive_has_no_undefined_kernel_symbols() -> None:
    """Prevents: the linker resolves a symbol of AITER or CK with another AITER."""
    undefined = names(ARCHIVE, "--undefined-only")
    assert undefined
    assert filter_kernel_names(undefined) == []


def test_archive_links_on_older_systems() -> None:
    """Prevents: older systems cannot link the archive or load programs linked with it."""
    (library,) = (LLVM.parent / "sysroot").rglob("libstdc++.so.6")
    versions = dict(
        re.findall(r" (\w+)@@(\w+_[\d.]+)$", tool("llvm-nm", "-D", "--defined-only", library), re.M)
    )
    listing = tool("llvm-nm", "--just-symbol-name", "--quiet", "--undefined-only", ARCHIVE)
    needed: dict[str, list[str]] = {}
    for name in set(listing.split()) & versions.keys():
        needed.setdefault(versions[name], []).append(name)
    assert len(needed) > 3
    needs = ElfNeeds(
        path=ARCHIVE.name,
        libraries=(library.name,),
        versions=dict.fromkeys(needed, library.name),
        symbols={version: tuple(names) for version, names in needed.items()},
        undefined=frozenset(),
    )
    check_platform([needs], "manylinux_2_28_x86_64", ())
    assert "__libc_single_threaded" not in listing


def test_manifest_and_sbom_describe_the_archive() -> None:
    """Prevents: manifest.json or the SBOM omits the bundle's archive."""
    bundle = Path(os.environ["QOLA_TEST_BUNDLE"], "manifest.json").resolve().parent
    record = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(record)
    content = ARCHIVE.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    path = "lib/libqola_ci.a"
    assert record["static"] == {"path": path, "sha256": digest, "size": len(content)}
    assert (bundle / path).read_bytes() == content
    sbom = json.loads((bundle / "sbom.spdx.json").read_text(encoding="utf-8"))
    (file,) = [file for file in sbom["files"] if file["fileName"] == f"./{path}"]
    assert file["fileTypes"] == ["BINARY"]
    dynamic = [
        relationship["spdxElementId"]
        for relationship in sbom["relationships"]
        if relationship["relationshipType"] == "DYNAMIC_LINK"
    ]
    assert len(dynamic) == 2
    assert file["SPDXID"] not in dynamic


def test_each_module_is_a_member() -> None:
    """Prevents: a program that only calls forward contains the backward kernels."""
    assert tool("llvm-ar", "t", ARCHIVE).split() == ["ci_libmha_bwd.o", "ci_libmha_fwd.o"]


def test_library_with_the_archive_exports_no_kernels() -> None:
    """Prevents: another AITER overrides symbols of a framework's library."""
    exported = names(LIBRARIES["libprivate.so"], "--dynamic", "--defined-only")
    assert [name.split("(")[0] for name in filter_kernel_names(exported)] == ["ask"]
    # The test requires that the other library exports these names.
    other = names(LIBRARIES["libother.so"], "--dynamic", "--defined-only")
    assert any(name.startswith("aiter::mha_fwd(") for name in other)
    assert any("FmhaFwdKernel" in name for name in other)


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_two_aiters_in_one_process(program: str, tmp_path: Path) -> None:
    """Prevents: calls of one AITER launch kernels of another."""
    directory = LIBRARIES["libother.so"].parent
    hip = FakeHip(FAKE, "gfx950", (directory,))
    result = hip.run([PROGRAMS[program]], tmp_path / "log")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "fp16 32: inside 0, other -1",
        "bf16 128: inside -1, other 0",
    ]
    launched = [of_symbol(launch.kernel) for launch in read_log(tmp_path / "log")]
    assert len(launched) == 2
    assert launched[0] != launched[1]


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_symbols_are_not_bound_across_libraries(program: str, tmp_path: Path) -> None:
    """Prevents: the loader binds a function of one AITER to another AITER's definition."""
    directory = LIBRARIES["libother.so"].parent
    hip = FakeHip(FAKE, "gfx950", (directory,))
    result = hip.run([PROGRAMS[program]], tmp_path / "log", LD_DEBUG="bindings", LD_BIND_NOW="1")
    bindings = [line for line in result.stderr.splitlines() if "symbol `" in line]
    assert bindings
    crossing = []
    for line in bindings:
        user, _, definer = line.partition(" to ")
        if ("libother.so" in user) != ("libother.so" in definer):
            crossing.append(definer.partition("symbol `")[2].split("'")[0])
    # The only such binding is the program's call of AITER's function.
    (call,) = filter_kernel_names(crossing)
    assert call.startswith("_ZN5aiter7mha_fwdE")
