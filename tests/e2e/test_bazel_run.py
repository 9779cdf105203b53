"""The Bazel calls of qola build, in a workspace of genrules: events, failures, interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qola.build.bazel import BuildOptions, build, find_bazel
from qola.build.events import DEFAULT_OUTPUTS
from qola.build.results import first_errors
from qola.build.setup import ResolvedBuild
from qola.build.workspace import Workspace
from qola.checkout.source import AiterSource, WheelSource
from qola.manifest.load import loads
from qola_base.errors import ToolchainError
from tests.e2e.nested_bazel import QOLA, Bazel, environment
from tests.e2e.nested_bazel import find_bazel as bazel_program
from tests.support.folders import write
from tests.support.waiting import wait_for

BUILD = """\
genrule(name = "good", outs = ["a/good.so", "b.txt"], cmd = "touch $(OUTS)")
genrule(name = "bad", outs = ["bad.so"], srcs = [":broken"], cmd = "cp $< $@")
genrule(name = "broken", outs = ["broken.o"],
        cmd = "echo 'k.cpp:3:1: error: no such kernel' >&2; exit 3")
genrule(name = "slow", outs = ["slow.so"], cmd = "touch $(RULEDIR)/started; sleep 300; touch $@")
"""
PASSING = """\
def _passing_test_impl(ctx):
    file = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(file, "#!/bin/sh\\n", is_executable = True)
    return [DefaultInfo(executable = file)]

passing_test = rule(implementation = _passing_test_impl, test = True)
"""
FAILING = """\
fail("\\nqola: PlanError: the manifest cannot be planned (1 error)\\nerror: m.toml:3")
"""


@pytest.fixture(scope="module")
def bazel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bazel]:
    """A workspace with a Bazel server that the fixture shuts down."""
    directory = tmp_path_factory.mktemp("run")
    instance = Bazel(directory / "workspace", directory / "base", directory / "disk")
    (instance.workspace / "planned").mkdir(parents=True)
    startup = f"startup --output_base={instance.output_base} --max_idle_secs=30\n"
    instance.write(".bazelrc", startup + "common --lockfile_mode=off\n")
    instance.write("MODULE.bazel", 'module(name = "probe")\n')
    instance.write("BUILD.bazel", BUILD)
    instance.write("planned/BUILD.bazel", FAILING)
    yield instance
    instance.run("shutdown", check=False)


def test_one_failure_keeps_other_results(bazel: Bazel) -> None:
    """Prevents: qola reports a built module as failed, or a failure without its error."""
    targets = ["//:good", "//:bad"]
    result = build([bazel_program()], bazel.workspace, targets, BuildOptions(), environment())
    assert result.exit_code == 1
    good, bad = result.targets["//:good"], result.targets["//:bad"]
    assert good.success
    assert [path.name for path in good.outputs[DEFAULT_OUTPUTS]] == ["good.so", "b.txt"]
    assert all(path.is_file() for path in good.outputs[DEFAULT_OUTPUTS])
    assert not bad.success
    assert 0 < good.seconds < 600
    (action,) = (result.failed[key] for key in bad.failures)
    assert (action.name, action.mnemonic, action.exit_code) == ("broken", "Genrule", 3)
    assert action.stderr is not None
    assert first_errors(action.stderr.read_text()) == ("k.cpp:3:1: error: no such kernel",)


def test_analysis_failure(bazel: Bazel) -> None:
    """Prevents: qola reports a failed plan as a module that did not compile."""
    targets = ["//planned:it"]
    result = build([bazel_program()], bazel.workspace, targets, BuildOptions(), environment())
    assert result.exit_code == 1
    assert not any(target.success for target in result.targets.values())
    (error,) = result.errors()
    assert error.startswith("qola: PlanError: the manifest cannot be planned (1 error)")
    assert error.endswith("error: m.toml:3")


@pytest.mark.quick(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_bazel(bazel: Bazel, number: signal.Signals, code: int) -> None:
    """Prevents: after Ctrl-C, Bazel continues to compile or holds its lock."""
    script = f"""
import logging, os, signal, sys
from pathlib import Path
from qola.build.bazel import BuildOptions, build
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGINT, signal.default_int_handler)
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
# Drop progress messages: only a slow machine logs them before the signal.
logging.getLogger("qola").addFilter(lambda record: not hasattr(record, "share"))
try:
    build([{bazel_program()!r}], Path({str(bazel.workspace)!r}), ["//:slow"],
          BuildOptions(more=("--spawn_strategy=local",)), os.environ)
except KeyboardInterrupt:
    sys.exit(130)
"""
    env = {**environment(), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    started = bazel.output_base / "execroot/_main/bazel-out/k8-fastbuild/bin/started"
    started.unlink(missing_ok=True)
    wait_for(lambda: started.exists() or process.poll() is not None, 240)
    assert process.poll() is None, "the build ended before the signal"
    process.send_signal(number)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == code
    assert out == "stopping Bazel\n"
    # The lock is free: this command does not wait for it.
    command = [bazel_program(), "--noblock_for_lock", "info", "release"]
    subprocess.run(command, cwd=bazel.workspace, check=True, capture_output=True)


def test_commands_keep_the_analysis(bazel: Bazel) -> None:
    """Prevents: an option that one command lacks, so that a change of command analyses all anew."""
    bazel.write("passing/passing.bzl", PASSING)
    call = 'load(":passing.bzl", "passing_test")\npassing_test(name = "it_test")\n'
    bazel.write("passing/BUILD.bazel", call)
    ours = (QOLA / ".bazelrc").read_text(encoding="utf-8")
    own = (bazel.workspace / ".bazelrc").read_text(encoding="utf-8")
    with bazel.rewritten(".bazelrc", own, own + ours):
        for command in ("build", "run", "test", "build", "aquery"):
            found = bazel.run(command, "//passing:it_test").stderr
            assert "discarding analysis cache" not in found, (command, found)


def test_manifests_have_one_server(bazel: Bazel) -> None:
    """Prevents: each manifest keeps a Bazel server of a gigabyte running for three hours."""
    base = bazel.output_base.with_name("shared")
    pids = []
    for name in ("first", "second"):
        directory = bazel.workspace.with_name(name)
        files = workspace(directory.parent).files(directory, base)
        write(directory, {".bazelrc": files[".bazelrc"], "MODULE.bazel": ""})
        command = [bazel_program(), "info", "server_pid", "output_base"]
        run = subprocess.run(command, cwd=directory, check=True, text=True, stdout=subprocess.PIPE)
        info = dict(line.split(": ") for line in run.stdout.splitlines())
        assert info["output_base"] == str(base)
        pids.append(int(info["server_pid"]))
    options = (base / "server/cmdline").read_text(encoding="utf-8").split("\0")
    assert "--max_idle_secs=60" in options
    first = Path(f"/proc/{pids[0]}/cmdline")
    assert not first.exists() or not first.read_bytes(), "the first server still runs"
    subprocess.run([bazel_program(), "shutdown"], cwd=directory, check=True)


def workspace(cache: Path) -> Workspace:
    """Return a workspace of qola build; its startup options are equal for all manifests."""
    manifest = loads('[[modules]]\nname = "libmha_fwd"\n', file="it.toml")
    source = AiterSource(WheelSource("0.1.7", "a" * 64))
    chosen = ResolvedBuild(manifest, Path("it.toml"), manifest.modules, source)
    return Workspace(chosen, [bazel_program()], QOLA, cache)


SLOW_WRITER = r"""
import json, sys, time
name = [a for a in sys.argv if a.startswith("--build_event_json_file=")][0].partition("=")[2]
target = {"id": {"targetCompleted": {"label": "//:k\u00e9rnel"}}, "completed": {"success": True}}
done = {"id": {"buildFinished": {}}, "finished": {"exitCode": {"code": 0}}}
lines = [json.dumps(event, ensure_ascii=False) for event in (target, done)]
data = ("\n".join(lines) + "\n").encode("utf-8")
split = data.index(b"\xc3") + 1
with open(name, "wb", buffering=0) as file:
    file.write(data[:split])
    time.sleep(0.5)
    file.write(data[split:])
"""


def test_event_file_that_ends_within_a_character(tmp_path: Path) -> None:
    """Prevents: a build fails if the event file ends within a multi-byte character."""
    writer = [sys.executable, "-c", SLOW_WRITER]
    result = build(writer, tmp_path, ["//:kérnel"], BuildOptions(), environment())
    assert (result.exit_code, list(result.targets)) == (0, ["//:kérnel"])


def test_no_bazel(tmp_path: Path) -> None:
    """Prevents: a traceback on a machine without Bazel."""
    with pytest.raises(ToolchainError, match="neither bazelisk nor bazel"):
        find_bazel({"PATH": str(tmp_path)}, tmp_path)
    with pytest.raises(ToolchainError, match="/no/bazel, which is not a program"):
        find_bazel({"PATH": str(tmp_path), "QOLA_BAZEL": "/no/bazel"}, tmp_path)


def test_which_bazel(tmp_path: Path) -> None:
    """Prevents: qola runs another Bazel than QOLA_BAZEL names, or ignores bazelw."""
    (tmp_path / "bin").mkdir()
    for name in ("bin/bazel", "bin/bash", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": str(tmp_path / "bin")}
    assert find_bazel(path, tmp_path) == [str(tmp_path / "bin/bazel")]
    (tmp_path / "bazelw").write_text("")
    wrapper = [str(tmp_path / "bin/bash"), str(tmp_path / "bazelw")]
    assert find_bazel(path, tmp_path) == wrapper
    assert find_bazel({**path, "QOLA_BAZEL": "tree"}, tmp_path) == wrapper
    mine = str(tmp_path / "mine")
    assert find_bazel({**path, "QOLA_BAZEL": mine}, tmp_path) == [mine]
