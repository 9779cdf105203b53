"""qola kernels: what goes to a bundle's program, and what a manifest alone answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from qola.cli import command_line as cli
from qola.cli.kernels import KernelsError, Words, find_program, parse, split_words

MANIFEST = """\
[build]
architectures = ["gfx942", "gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
group = "forward"
[[modules]]
name = "module_aiter_enum"
mode = "pybind"
group = "other"
[[mha_fwd_variants]]
dtype = "fp16"
hdim = 32
mode = "batch"
has_mask = false
has_bias = false
has_alibi = false
has_dropout = false
has_lse = true
"""

# Says what it was given, and ends as it is told.
PROGRAM = f"""\
#!{sys.executable}
import json, os, signal, sys
given = sys.argv[1:]
if "wait" in given:
    print("waiting", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(3)
if "die" in given:
    os.kill(os.getpid(), signal.SIGKILL)
text = sys.stdin.read() if "-" in given else ""
print(json.dumps([given, text, os.getcwd(), os.environ.get("QOLA_CACHE")]))
print("beside", file=sys.stderr)
sys.exit(5)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a manifest and a bundle."""
    (tmp_path / "m.toml").write_text(MANIFEST)
    program = tmp_path / "te/bin/qola-kernels"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tmp_path / "te/share/qola/te").mkdir(parents=True)
    return tmp_path


def qola(
    here: Path, *words: str, stdin: str = "", environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run qola as a process, whose streams a bundle's program gets."""
    return subprocess.run(
        [sys.executable, "-m", "qola", "kernels", *words],
        cwd=here,
        env={**environment(), **(environ or {})},
        input=stdin,
        text=True,
        capture_output=True,
        check=False,
    )


def environment() -> dict[str, str]:
    """The environment of this process, in which its qola is found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("list", Words(None, None, ("list",))),
        ("list --bundle a b --all", Words("a", None, ("list", "b", "--all"))),
        ("--bundle=a list --list -", Words("a", None, ("list", "--list", "-"))),
        ("list -m a --json", Words(None, "a", ("list", "--json"))),
        ("list --manifest=a=b", Words(None, "a=b", ("list",))),
        ("verify --bundle a -- --bundle b", Words("a", None, ("verify", "--", "--bundle", "b"))),
        ("list --bundles a", Words(None, None, ("list", "--bundles", "a"))),
        ("", Words(None, None, ())),
    ],
)
def test_words(given: str, expected: Words) -> None:
    """Prevents: an option of the program that is changed, or taken for qola's."""
    assert split_words(given.split()) == expected


@pytest.mark.parametrize("given", ["list --bundle", "list -m", "list --bundle a --manifest b"])
def test_wrong_words(given: str) -> None:
    """Prevents: one of two answers chosen in silence; an error without place."""
    with pytest.raises(KernelsError, match="the command line"):
        split_words(given.split())


def test_everything_goes_to_the_program(here: Path) -> None:
    """Prevents: options, input, output or exit code that the program's wrapper changes."""
    words = ["build", "--bundle", "te", "--list", "-", "--jobs=2", "--help", "--", "-x"]
    found = qola(here, *words, stdin="a\nb\n", environ={"QOLA_CACHE": "cache"})
    assert found.returncode == 5
    assert found.stderr == "beside\n"
    given = ["build", "--list", "-", "--jobs=2", "--help", "--", "-x"]
    assert json.loads(found.stdout) == [given, "a\nb\n", str(here), "cache"]


def test_signals(here: Path) -> None:
    """Prevents: a program that outlives qola, and a death that looks like success."""
    assert qola(here, "list", "--bundle", "te", "die").returncode == 128 + signal.SIGKILL
    command = [sys.executable, "-m", "qola", "kernels", "build", "--bundle", "te", "wait"]
    with subprocess.Popen(
        command, cwd=here, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
    assert process.returncode == cli.EXIT_INTERRUPTED


@pytest.mark.parametrize("root", ["te/share/qola/te", "te/share/qola", "te/", "te"])
def test_the_bundle_of_qola_root(here: Path, root: str) -> None:
    """Prevents: QOLA_ROOT, which libraries have found their kernels by, not found by qola."""
    assert find_program(None, root, here) == here / "te/bin/qola-kernels"
    found = qola(here, "cache", "--current", environ={"QOLA_ROOT": root})
    assert (found.returncode, json.loads(found.stdout)[0]) == (5, ["cache", "--current"])


def test_no_bundle(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: an error that leaves out a way to name kernels; help that needs a bundle."""
    assert cli.main(["kernels", "list"], {}, directory=here) == 2
    text = capsys.readouterr().err
    for word in ("--bundle", "--manifest", "QOLA_ROOT"):
        assert word in text
    for words in ([], ["--help"], ["list", "--help"]):
        assert cli.main(["kernels", *words], {}, directory=here) == 0
        assert "usage: qola kernels " in capsys.readouterr().out
    for words, place in (
        (["list", "--bundle", "absent"], "absent: no such directory"),
        (["list", "--bundle", "te/bin"], "te/bin, without bin/qola-kernels"),
    ):
        assert cli.main(["kernels", *words], {"QOLA_ROOT": "te"}, directory=here) == 2
        assert place in capsys.readouterr().err
    assert cli.main(["kernels", "list"], {"QOLA_ROOT": "/nowhere"}, directory=here) == 2
    assert "error: QOLA_ROOT" in capsys.readouterr().err
    (here / "te/bin/qola-kernels").chmod(0o644)
    assert cli.main(["kernels", "list", "--bundle", "te"], {}, directory=here) == 2
    assert "te/bin/qola-kernels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("export --manifest m.toml --output a.qpack", "qola kernels export --bundle DIR"),
        ("verify --manifest m.toml", "a lazy bundle"),
        ("clean --manifest m.toml --all", "a lazy bundle"),
        ("cache --manifest m.toml", "a lazy bundle"),
        ("build --manifest m.toml --output a.qpack", "no kernel"),
        ("build --manifest m.toml --output a.qpack a.so.abc123", "no kernel"),
        ("build --manifest m.toml --output a --all", "a file whose name ends in .qpack"),
        ("build --manifest m.toml --output m.toml/a.qpack --all", "that can be written to"),
    ],
)
def test_what_a_manifest_cannot_do(
    here: Path, given: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a build of everything by mistake; a command that does nothing in silence."""
    assert cli.main(["kernels", *given.split()], {}, directory=here) == 2
    assert why in capsys.readouterr().err


def test_one_command_line_for_both() -> None:
    """Prevents: options that have to be renamed from list to build."""
    words = "--manifest m.toml --aiter a --arch gfx942 --build-mode cpp_itfs --group g --blob k"
    listed = parse(["list", *words.split(), "x"])
    built = parse(["build", *words.split(), "x", "--output", "x.qpack"])
    for args in (listed, built):
        assert (args.manifest, args.arch, args.group) == (Path("m.toml"), ["gfx942"], ["g"])
        assert (args.words, args.names) == (["x"], ["k"])
    assert (listed.aiter, listed.build_mode) == (built.aiter_root, built.mode)


@pytest.mark.parametrize(
    "given",
    [
        "pack --manifest m.toml",
        "list --manifest m.toml --jobs 2",
        "list --manifest m.toml --format list",
        "build --manifest m.toml --all",
    ],
)
def test_usage(here: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: an option of the program that a manifest's command ignores."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["kernels", *given.split()], {}, directory=here)
    assert caught.value.code == 2
    assert "usage: qola kernels" in capsys.readouterr().err


def test_list(here: Path, aiter_tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a list of other kernels than the plan's; a missing one that CI does not notice."""

    def run(*words: str) -> tuple[int, list[str], str]:
        given = ["kernels", "list", "-q", "--manifest", "m.toml", "--aiter", str(aiter_tree)]
        code = cli.main([*given, *words], {}, directory=here)
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    code, every, err = run()
    assert (code, err) == (0, "")
    assert len(every) == len({*every}) > 2
    assert {line.split()[1] for line in every} == {"gfx942", "gfx950"}
    assert cli.main(["list", "m.toml", "-q", "--aiter", str(aiter_tree)], {}, directory=here) == 0
    assert {line.split()[0] for line in every} == {*capsys.readouterr().out.split()}
    first, last = every[0].split(), every[-1].split()
    other = "gfx942" if last[1] == "gfx950" else "gfx950"
    (here / "list").write_text(f"src/{first[0]}.cpp\nx.so.abc123\n{last[0]} {other}\n")
    code, rows, err = run("--list", "list", "nobody")
    assert code == 1
    assert rows == [every[0]]
    assert "qola: 1 lines were names of temporary files, and passed over" in err
    assert f"qola: there is no kernel {last[0]} {other} in m.toml" in err
    assert "qola: there is no kernel nobody in m.toml" in err
    code, rows, _ = run("--arch", last[1], "--blob", last[0], "--record", "list")
    assert (code, rows) == (1, [line for line in (every[0], every[-1]) if last[1] in line])
    assert run("--group", "other") == (0, [], "")
    (here / "list").write_text("one two three\n")
    code, rows, err = run("--list", "list")
    assert (code, rows) == (1, [])
    assert "error: list:1" in err
