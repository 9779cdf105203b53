"""Run qola build (with failures, and with --lazy) and qola pack with a fake Bazel.

The fake Bazel takes targets from the real macros of rules/: the repository of PLAN, evaluated.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qola.cli import command_line as cli
from qola.manifest import toml
from qola.manifest.toml import Lines
from qola.plan.model import HeaderSet, PlannedFile
from qola.repository.build_files import manifest_build_file
from tests.support import build_files, plans
from tests.support.folders import write

MANIFEST = """\
[qola]
namespace = "te"

[build]
architectures = ["gfx942", "gfx950"]
mode = "cpp_itfs"

[[modules]]
name = "libmha_fwd"
receipt = 600

[[modules]]
name = "module_deepgemm"
mode = "pybind"
group = "python"
"""

STUBS = (PlannedFile("fwd", "libmha_fwd/stubs/fwd.cpp", ""),)
PLAN = plans.plan(
    name="te",
    header_sets=(HeaderSet("libmha_fwd", (), ()),),
    modules=(plans.module(library="te_libmha_fwd.so", stubs=STUBS),),
    python_modules=(plans.python_module("module_deepgemm", "deepgemm.so"),),
)

LAZY = {
    "bin/qola-kernels": "program",
    "lib/te_libmha_fwd.so": "lazy library",
    "manifest.json": '{"lazy": true, "modules": [{"name": "libmha_fwd", "kernels": {}}]}',
    "share/qola/te/libmha_fwd/kernels.index": "index",
}
FULL = {
    "lib/te_libmha_fwd.so": "library",
    "lib/deepgemm.so": "module",
    "manifest.json": '{"lazy": false, "modules": [{"name": "libmha_fwd"}]}',
}

FAKE_BAZEL = Path(__file__).with_name("fake_bazel.py")
Qola = Callable[..., int]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the targets of the repository of PLAN, and which symbols BUILD files can load."""
    file = tmp_path_factory.mktemp("repository") / "BUILD.bazel"
    file.write_text(manifest_build_file(PLAN, source="te.toml", aiter="aiter"))
    found = build_files.evaluate(file)
    # The library behind a qola_library has the attributes of its form.
    targets = {name: found.get(f"{name}.built", values) for name, values in found.items()}
    symbols = {
        f"@qola//{place}:{name}": build_files.symbols(f"{place}/{name}")
        for place, name in (("rules", "defs.bzl"), ("rules/private", "generated.bzl"))
    }
    return json.dumps({"targets": targets, "symbols": symbols}, default=str)


@pytest.fixture
def qola(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: str) -> Qola:
    """Return a function that runs qola in a directory with a manifest and a fake Bazel."""
    bazel = f"#!{sys.executable}\n{FAKE_BAZEL.read_text()}"
    files = {"bazel": bazel, "te.toml": MANIFEST, "plan.json": PLAN.to_json()}
    print_arguments = "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 13\n"
    files |= {"verify": print_arguments, "dispatch": print_arguments}
    files |= {
        "repository.json": repository,
        "pack.qpack": "pack",
        "fails/broken": "broken.cpp:1:1: error: no such thing\n",
    }
    files |= {f"lazy/{name}": text for name, text in LAZY.items()}
    files |= {f"full/{name}": text for name, text in FULL.items()}
    write(tmp_path, files)
    for program in ("bazel", "verify", "dispatch"):
        (tmp_path / program).chmod(0o755)
    (tmp_path / "full/lib/deepgemm.so").chmod(0o555)
    monkeypatch.setenv("QOLA_BAZEL", str(tmp_path / "bazel"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NVTE_CK_JIT", raising=False)
    monkeypatch.delenv("QOLA_BUILD_GROUPS", raising=False)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: cli.main(arguments)


def requested_targets() -> list[str]:
    """Return the targets requested from Bazel since the previous call."""
    lines = Path("asked").read_text().splitlines() if Path("asked").exists() else []
    Path("asked").unlink(missing_ok=True)
    return lines


def installed() -> set[str]:
    return {path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file()}


def test_the_execution_log_covers_the_libraries(qola: Qola) -> None:
    """Prevents: `qola report` shows no seconds because the log covers only the bundle."""
    log = Path("log.json").absolute()
    option = f"--bazel-arg=--execution_log_json_file={log}"
    assert qola("build", "-m", "te.toml", "-o", "out", option) == 0
    assert requested_targets()[-1] == "//bundle:bundle"
    assert log.read_text() == "//:libmha_fwd //:module_deepgemm"


def test_a_manifest_is_parsed_once(qola: Qola, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a build parses its manifest twice, and a user edits the file in between."""
    parsed: list[str] = []
    real = toml.parse_toml

    def parse(text: str) -> tuple[dict[str, Any], Lines]:
        parsed.append(text)
        Path("te.toml").write_text("edited = true\n")
        return real(text)

    monkeypatch.setattr(toml, "parse_toml", parse)
    assert qola("build", "-m", "te.toml", "-o", "out") == 0
    assert parsed == [MANIFEST]
    (written,) = Path("cache").rglob("te.toml")
    assert written.read_text() == MANIFEST


def test_the_compiler_is_fetched_once(
    qola: Qola, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: `qola hipcc` prints a path in Bazel's outputs, or starts Bazel for each call."""
    write(Path(), {"sdk/bin/hipcc": "#!/bin/sh\n", "sdk/libexec/clang": "clang"})
    assert qola("hipcc", "-q") == 0
    path = Path(capsys.readouterr().out.removesuffix("\n"))
    assert requested_targets() == ["//:made"]
    # The compiler does not depend on Bazel's outputs.
    shutil.rmtree("sdk")
    assert {path.parents[1].name, "lock"} == {p.name for p in path.parents[2].iterdir()}
    assert path.is_absolute()
    assert path.read_text() == "#!/bin/sh\n"
    assert (path.parents[1] / "libexec/clang").read_text() == "clang"
    # Later calls do not start Bazel.
    monkeypatch.setenv("QOLA_BAZEL", "/bin/false")
    assert qola("hipcc") == 0
    assert capsys.readouterr().out == f"{path}\n"


def test_a_compiler_that_cannot_be_fetched(qola: Qola, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: after a failed fetch, later calls use an incomplete compiler."""
    write(Path(), {"fails/made": "", "sdk/bin/hipcc": "#!/bin/sh\n"})
    assert qola("hipcc", "-q") == 5
    assert "@qola//:hipcc cannot be made" in capsys.readouterr().err
    Path("fails/made").unlink()
    assert qola("hipcc", "-q") == 0


def test_lazy_and_full_in_one_directory(qola: Qola) -> None:
    """Prevents: a lazy library without sources; sources left after a full build; a wrong record."""
    assert qola("build", "-m", "te.toml", "-o", "out", "--lazy") == 0
    assert requested_targets() == ["//:libmha_fwd_lazy //:module_deepgemm", "//bundle:bundle"]
    assert installed() == {*LAZY, "lib/deepgemm.so"}
    record = json.loads(Path("out/manifest.json").read_text())
    assert record["lazy"] is True
    assert record["summary"] == {"total": 2, "success": 2, "failed": 0}
    library = Path("out/lib/te_libmha_fwd.so").absolute()
    assert [m["md_name"] for m in record["modules"]] == ["te_libmha_fwd", "deepgemm"]
    assert record["modules"][0]["so_path"] == str(library)
    assert record["modules"][0]["size"] == len("lazy library")
    assert qola("build", "-m", "te.toml", "-o", "out") == 0
    assert requested_targets() == ["//:libmha_fwd //:module_deepgemm", "//bundle:bundle"]
    assert installed() == {*FULL}
    assert library.read_text() == "library"
    assert json.loads(Path("out/manifest.json").read_text())["lazy"] is False


def test_results_as_json(qola: Qola, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: --json prints other text to standard output, or omits failed modules."""
    assert qola("build", "-m", "te.toml", "-o", "out", "--json") == 0
    out, _ = capsys.readouterr()
    assert json.loads(out) == json.loads(Path("out/manifest.json").read_text())
    write(Path(), {"fails/module_deepgemm": "m.cpp:1: error: no such thing\n"})
    assert qola("build", "-m", "te.toml", "-o", "out", "--json") == 7
    module = json.loads(capsys.readouterr().out)["modules"][1]
    assert module["success"] is False
    assert "error: no such thing" in module["error"]


def test_publish_as_json(
    qola: Qola, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a CI job cannot read from --json which archive was published or why it failed."""
    monkeypatch.delenv("QOLA_ROCM", raising=False)
    write(tmp_path, {"fwd.toml": MANIFEST.partition('[[modules]]\nname = "module_d')[0]})
    arguments = ("publish", "-m", "fwd.toml", "--to", "store", "--json")
    assert qola(*arguments) == 0
    result = json.loads(capsys.readouterr().out)
    (archive,) = Path("store").glob("*.tar.gz")
    assert archive.name.startswith(result["key"])
    assert result["size"] == archive.stat().st_size
    assert result["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert result["written"] is True
    write(tmp_path, {"fails/libmha_fwd": "x.cpp:1: error: no such thing\n"})
    assert qola(*arguments[:-1], "--overwrite", "--json") == 8
    error = json.loads(capsys.readouterr().out)["error"]
    assert "error: no such thing" in error["findings"][0]["found"]


def test_a_failed_bundle_keeps_the_libraries(
    qola: Qola, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a failed bundle discards built libraries; an old Python module looks new."""
    error = "the bundle cannot be made (1 error)\nerror: licenses/aiter\n  found     no license"
    earlier = dict.fromkeys(("out/sbom.spdx.json", "out/lib/deepgemm.so"), "of an earlier build")
    failing = {"fails/bundle": error, "fails/module_deepgemm": "m.cpp:1: error: no such thing\n"}
    write(tmp_path, {**earlier, **failing})
    assert qola("build", "-m", "te.toml", "-o", "out") == 7
    out, err = capsys.readouterr()
    assert "qola: the bundle was not made" in err
    assert error in err
    assert "  FAILED: deepgemm: " in out
    record = json.loads(Path("out/manifest.json").read_text())
    assert record["bundle_error"] == error
    assert record["summary"] == {"total": 2, "success": 1, "failed": 1}
    assert [m["md_name"] for m in record["modules"]] == ["te_libmha_fwd", "deepgemm"]
    assert installed() == {
        "lib/deepgemm.so.previous",
        "lib/te_libmha_fwd.so",
        "manifest.json",
        "sbom.spdx.json.previous",
    }


def test_nvte_ck_jit_selects_lazy_libraries(
    qola: Qola, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: qola ignores TransformerEngine's variable; tests/build/test_forms.py has values."""
    monkeypatch.setenv("NVTE_CK_JIT", "On")
    assert qola("build", "-m", "te.toml", "-o", "out") == 0
    assert "libmha_fwd_lazy" in requested_targets()[0]
    monkeypatch.setenv("NVTE_CK_JIT", "maybe")
    assert qola("build", "-m", "te.toml", "-o", "out") == 2
    assert "error: NVTE_CK_JIT" in capsys.readouterr().err
    assert requested_targets() == []


PACK = ("pack", "-q", "-m", "te.toml", "-o")


def test_pack(
    qola: Qola, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a pack with other kernels than requested; a partially written pack."""
    Path("list").write_text("both gfx942  # a comment\n\none\nboth gfx942\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("three\n"))
    Path("packs").mkdir()
    assert qola(*PACK, "packs/my.qpack", "two", "--list", "list", "--list", "-") == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("packs/my.qpack: 4 B\n", "")
    assert requested_targets() == ["//pack:pack"]
    (written,) = Path("cache/qola/workspaces").glob("te-*/pack/BUILD.bazel")
    lines = [line.strip() for line in written.read_text().splitlines()]
    kernels = lines[lines.index("kernels = [") + 1 :]
    assert kernels[: kernels.index("],")] == ['"two",', '"both:gfx942",', '"one",', '"three",']
    assert "deepgemm" not in written.read_text()
    assert [path.name for path in Path("packs").iterdir()] == ["my.qpack"]
    assert Path("packs/my.qpack").read_text() == "pack"
    assert Path("packs/my.qpack").stat().st_mode & 0o777 == 0o644
    assert qola(*PACK, "all.qpack", "--all") == 0
    assert "kernels =" not in written.read_text()


def test_a_failed_pack_keeps_the_old_file(qola: Qola, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a failed `qola pack` overwrites an existing pack, or exits with success."""
    Path("my.qpack").write_text("earlier")
    assert qola(*PACK, "my.qpack", "one", "nobody") == 2
    assert "no such kernel instance" in capsys.readouterr().err
    assert qola(*PACK, "my.qpack", "one", "broken") == 7
    out = capsys.readouterr().out
    assert out.startswith("FAILED: my.qpack: not written\n")
    assert "  broken: QolaCompile failed with exit code 1\n" in out
    assert "broken.cpp:1:1: error: no such thing" in out
    assert Path("my.qpack").read_text() == "earlier"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("my.qpack", "no kernel"),
        ("my.qpack --list empty", "no kernel"),
        ("my.qpack --all one", "kernels, and --all"),
        ("my.qpack --list nowhere", "error: nowhere"),
        ("my.qpack --list long", "error: long:2\n  found     one two three"),
        ("my --all", "a file whose name ends in .qpack"),
        ("te.toml/my.qpack --all", "that can be written to"),
        ("my.qpack --all --group none", "[[modules]].group"),
        ("my.qpack --all --group python", "no module with kernels"),
    ],
)
def test_invalid_pack_arguments(
    qola: Qola, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: qola packs all kernels by mistake, or compiles before it reports an error."""
    Path("empty").write_text("# nothing\n")
    Path("long").write_text("one\none two three\n")
    assert qola(*PACK, *arguments.split()) == 2
    assert message in capsys.readouterr().err
    assert requested_targets() == []


def test_verify(qola: Qola, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: `qola verify` tries other kernels than requested, or hides a failure."""
    options = ("--kernels", "*_a*", "--kernels", "b", "--samples", "2", "-j", "3", "--json")
    assert qola("verify", "-q", "-m", "te.toml", *options, "-o", "y/x.html") == 13
    assert capsys.readouterr().out.splitlines() == [
        "--samples=2",
        "--seed=0",
        "--kernels=*_a*",
        "--kernels=b",
        "--processes=3",
        "--json",
        f"--html={Path('y/x.html').absolute()}",
    ]
    assert requested_targets() == ["//verify:verify"]
    (written,) = Path("cache/qola/workspaces").glob("te-*/verify/BUILD.bazel")
    assert ":libmha_fwd_emulated" in written.read_text()
    assert "deepgemm" not in written.read_text()


def test_dispatch(qola: Qola, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: `qola dispatch` tries other problems than requested, or hides a failure."""
    options = ("--problems", "mine.jsonl", "--count", "7", "--json")
    assert qola("dispatch", "-q", "-m", "te.toml", *options) == 13
    assert capsys.readouterr().out.splitlines() == [
        "--count=7",
        "--seed=0",
        f"--problems={Path('mine.jsonl').absolute()}",
        "--json",
    ]
    assert qola("dispatch", "-q", "-m", "te.toml", "--problems", "sweep", "--seed", "3") == 13
    assert capsys.readouterr().out.splitlines() == ["--count=1000", "--seed=3", "--problems=sweep"]
    assert requested_targets() == ["//dispatch:dispatch"] * 2
    (written,) = Path("cache/qola/workspaces").glob("te-*/dispatch/BUILD.bazel")
    assert "@qola//qola_lab/fmha:tool" in written.read_text()


def test_verify_reports_a_failed_build(qola: Qola, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: `qola verify` reports a failed build as a wrong result or as success."""
    Path("fails/verify").write_text("x.cpp:1:1: error: no such thing\n")
    assert qola("verify", "-q", "-m", "te.toml") == 7
    assert "x.cpp:1:1: error: no such thing" in capsys.readouterr().out
    assert qola("verify", "-q", "-m", "te.toml", "--group", "python") == 2
    assert "no module with kernels" in capsys.readouterr().err
