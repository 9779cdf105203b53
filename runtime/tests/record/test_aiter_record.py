"""The recorder of AITER's requests, with the JIT in the AITER wheel.

AITER's core.py works without PyTorch's library; its functions are then plain Python. The tests
replace AITER's package around core.py, torch, setuptools, hipconfig, hipcc, jinja2 and psutil. The
psutil module ends a build before the compiler is called.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import packaging
import pytest

from qola.manifest.load import load
from qola.manifest.toml import parse_toml
from runtime.record import aiter_record
from runtime.record.aiter_record import Record, manifest
from tests.support import running

RECORDER = Path(__file__).parents[3] / "runtime/record/aiter_record.py"

#: Requests of an installed module, of variants and of functions.
OPS = """\
import aiter.jit.core as core
def variant(x): return {"md_name": f"mha_fwd_{x}_nbias"}
@core.compile_ops("module_custom")
def wvSpltK(x): ...
@core.compile_ops("module_mha_fwd", fc_name="mha_fwd", gen_func=variant)
def mha_fwd(x): ...
@core.compile_ops("module_quant", None, lambda x: {"md_name": f"module_quant_{x}"})
def quant(x): ...
def call_name(name, x): return call(globals()[name], x)
def call(function, x):
    try:
        function(x)
    except Exception as error:
        return repr(error)
"""
PA = """\
from csrc.cpp_itfs import utils
template = utils.Template("void {{func_name}}() {}")
def pa(**args):
    try:
        return utils.compile_template_op(template, "pa_v1", ["utils.h"], folder=None, **args)
    except Exception as error:
        return repr(error)
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def recorder(
    directory: Path, environ: Mapping[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run the recorder in a directory."""
    command = [sys.executable, str(RECORDER), *words]
    return running.run(command, cwd=directory, env=environ, timeout=120)


def start_recorder(
    directory: Path, environ: Mapping[str, str], *words: str
) -> subprocess.Popen[bytes]:
    """Start the recorder, and wait for the first line that the recorded program prints."""
    command = [sys.executable, str(RECORDER), *words]
    process = subprocess.Popen(command, cwd=directory, env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


@pytest.fixture
def environ(tmp_path: Path, aiter_tree: Path) -> dict[str, str]:
    """Return variables of a process that imports AITER's JIT."""
    root = tmp_path / "site"
    for place in ("aiter", "bin", "jit"):
        (root / place).mkdir(parents=True)
    (root / "aiter/__init__.py").write_text("")
    (root / "aiter/jit").symlink_to(aiter_tree / "aiter/jit")
    metadata = root / "amd_aiter-0.1.7.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: amd-aiter\nVersion: 0.1.7.post2.dev18\n")
    (root / "csrc").symlink_to(aiter_tree / "aiter_meta/csrc")
    (root / "ops.py").write_text(OPS)
    (root / "pa.py").write_text(PA)
    (root / "torch.py").write_text("import importlib.util")
    (root / "psutil.py").write_text("raise RuntimeError('the build ends here')")
    (root / "jinja2.py").write_text(
        "class Template:\n def __init__(self, text): self.text = text\n"
        " def render(self, **args): return self.text + repr(sorted(args))\n"
    )
    (root / "setuptools/command").mkdir(parents=True)
    (root / "setuptools/__init__.py").write_text("")
    (root / "setuptools/command/build_ext.py").write_text("class build_ext: ...\n")
    for name, text in (("hipconfig", "echo 7.2.0"), ("hipcc", "exit 1")):
        program = root / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    # A fake installed module.
    (root / "jit/module_custom.py").write_text("def wvSpltK(x):\n 'wvSpltK(x: str) -> None'\n")
    return {
        "PATH": f"{root / 'bin'}:/usr/bin:/bin",
        # In a Bazel test, packaging is in a separate directory.
        "PYTHONPATH": f"{root}:{Path(packaging.__file__).parents[1]}",
        "HOME": str(tmp_path),
        "GPU_ARCHS": "gfx942",
        "AITER_JIT_DIR": str(root / "jit"),
        "AITER_ROOT_DIR": str(tmp_path / "cpp_itfs"),
    }


@pytest.fixture
def run(tmp_path: Path, environ: dict[str, str]) -> Run:
    """Return a function that runs and records the text of a program in a separate directory."""
    work = tmp_path / "work"
    work.mkdir()

    def call(
        program: str, *options: str, env: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-c", program)
        return recorder(work, {**environ, **env}, *options, "--", *command)

    return call


def tables(file: Path) -> dict[str, Any]:
    return parse_toml(file.read_text("utf-8"))[0]


def names(file: Path) -> list[str]:
    return [module["name"] for module in tables(file)["modules"]]


def test_modules_and_variants(run: Run, tmp_path: Path) -> None:
    """Prevents: the manifest lacks a module, and the server then compiles it for minutes."""
    program = "import ops\nfor f in (ops.mha_fwd, ops.wvSpltK, ops.quant): print(ops.call(f, 'a'))"
    result = run(program)
    assert result.returncode == 0, result.stderr
    # Calls end as without the recorder: builds with the error of psutil, others with AITER's error.
    assert result.stdout.count("the build ends here") == 2
    file = tmp_path / "work/aiter.toml"
    assert tables(file)["build"] == {"architectures": ["gfx942"], "mode": "aiter"}
    assert tables(file)["qola"] == {"aiter_commit": "0.1.7.post2.dev18"}
    assert names(file) == ["module_custom", "module_mha_fwd", "module_quant"]
    assert tables(file)["modules"][1]["names"] == ["mha_fwd_a_nbias"]
    assert file.read_text("utf-8").count("# compiled by AITER's JIT") == 2
    assert [(m.name, m.names) for m in load(file).modules][1] == (
        "module_mha_fwd",
        ("mha_fwd_a_nbias",),
    )
    assert "3 modules, 2 variants, 0 functions" in result.stderr


def test_functions_of_the_second_jit(run: Run, tmp_path: Path) -> None:
    """Prevents: the manifest lacks paged attention, or has other arguments than the request."""
    program = (
        "import pa\nprint(pa.pa(gqa_ratio=8, dtype='_Float16', alibi_enabled=False))\n"
        "print(pa.utils.get_default_func_name('asm_mla', (16, 1)))\n"
        "from csrc.cpp_itfs.sampling.top_p_sampling_from_probs import compile\n"
        "try:\n compile(128256, deterministic=True)\nexcept Exception as error: print(error)\n"
    )
    result = run(program)
    assert result.returncode == 0, result.stderr
    file = tmp_path / "work/aiter.toml"
    lines = file.read_text("utf-8").splitlines()
    # A manifest can only request functions of AITER's files that need only their template.
    (function,) = load(file).functions
    assert function.name == "top_p_sampling_from_probs"
    assert dict(function.arguments) == {"d": 128256, "deterministic": True}
    (mla, other) = [line for line in lines if line.startswith(("# pa_v1_", "# asm_mla_"))]
    # AITER's name contains the digest of the arguments.
    assert other == "# pa_v1_12640dc81ee8369d7762eb22109d88ad: " + (
        "gqa_ratio=8 dtype=_Float16 alibi_enabled=False"
    )
    assert mla == f"# {result.stdout.splitlines()[1]}: 16 1"


def test_child_processes(run: Run, tmp_path: Path) -> None:
    """Prevents: the manifest lacks modules of the processes that a server starts for each GPU."""
    program = """if 1:
        import multiprocessing, os, subprocess, sys
        code = "import ops; ops.call(ops.quant, 'shell')"
        subprocess.run([sys.executable, "-c", code], cwd="/", check=True)
        import ops
        spawn, fork = map(multiprocessing.get_context, ("spawn", "fork"))
        jobs = [c.Process(target=ops.call_name, args=("mha_fwd", n)) for c, n in
                ((spawn, "spawn"), (spawn, "spawn2"), (fork, "fork"))]
        for job in jobs: job.start()
        for job in jobs: job.join()
        print([job.exitcode for job in jobs])
        """
    result = run(program)
    assert (result.returncode, result.stdout) == (0, "[0, 0, 0]\n"), result.stderr
    text = (tmp_path / "work/aiter.toml").read_text("utf-8")
    for name in ("shell", "spawn", "spawn2", "fork"):
        assert f"_{name}" in text
    assert names(tmp_path / "work/aiter.toml") == ["module_mha_fwd", "module_quant"]


def test_a_killed_process_keeps_the_record(run: Run, tmp_path: Path) -> None:
    """Prevents: the record is empty after a watchdog killed the server."""
    result = run("import ops, os; ops.call(ops.mha_fwd, 'x'); os.kill(os.getpid(), 9)")
    assert result.returncode == 128 + signal.SIGKILL
    assert names(tmp_path / "work/aiter.toml") == ["module_mha_fwd"]


def test_a_killed_recorder_leaves_the_record(environ: dict[str, str], tmp_path: Path) -> None:
    """Prevents: hours of records are lost if the recorder is killed."""
    program = "import ops, time; ops.call(ops.mha_fwd, 'x'); print('up', flush=True)"
    command = ("-o", "a.toml", "--", sys.executable, "-c", program)
    with start_recorder(tmp_path, environ, *command) as process:
        process.kill()
    (tmp_path / "a.toml").unlink(missing_ok=True)
    options = ("--from", "a.jsonl", "-o", "a.toml", "--arch=gfx950")
    assert recorder(tmp_path, environ, *options).returncode == 0
    assert names(tmp_path / "a.toml") == ["module_mha_fwd"]
    assert tables(tmp_path / "a.toml")["build"]["architectures"] == ["gfx950"]


@pytest.mark.parametrize(
    ("program", "code"), [("raise SystemExit(7)", 7), ("import os; os.abort()", 128 + 6)]
)
def test_the_exit_code_is_the_programs(run: Run, program: str, code: int) -> None:
    """Prevents: CI passes although the server failed."""
    assert run(program).returncode == code


def test_a_command_that_does_not_exist(environ: dict[str, str], tmp_path: Path) -> None:
    """Prevents: a traceback instead of the shell's exit code."""
    result = recorder(tmp_path, environ, "--", "no-such-program", "--option")
    assert result.returncode == 127
    assert "no-such-program: No such file" in result.stderr


def test_signals_reach_the_program(environ: dict[str, str], tmp_path: Path) -> None:
    """Prevents: a server continues to run after the recorder gets SIGTERM."""
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: exit(5))\nprint('up', flush=True)\n"
        "time.sleep(60)"
    )
    with start_recorder(tmp_path, environ, "--", sys.executable, "-c", program) as process:
        begin = time.monotonic()
        process.terminate()
        assert process.wait() == 5
    assert time.monotonic() - begin < 30


def test_nothing_else_changes(run: Run, environ: dict[str, str], tmp_path: Path) -> None:
    """Prevents: the recorder hides an image's sitecustomize, or changes a program's output."""
    directory = tmp_path / "own"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text("marker = 'own'\n")
    program = (
        "import sys, sitecustomize, inspect, aiter.jit.core as core\n"
        "print(sitecustomize.marker, sys.path, type(core.__loader__).__name__,\n"
        " core.__spec__.loader is core.__loader__, vars(core.__loader__).keys(),\n"
        " inspect.signature(core.compile_ops), core.get_module.cache_info(), core.__file__)"
    )
    env = {"PYTHONPATH": f"{directory}:{environ['PYTHONPATH']}"}
    recorded = run(program, env=env)
    command = [sys.executable, "-c", program]
    plain = running.run(command, cwd=tmp_path / "work", env={**environ, **env})
    assert (recorded.returncode, plain.returncode) == (0, 0), recorded.stderr + plain.stderr
    assert recorded.stdout == plain.stdout


def test_a_record_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    """Prevents: an unwritable record stops a running server, or a run is not recorded."""
    result = run("print('ran')", "--record", "/proc/no.jsonl")
    assert (result.returncode, result.stdout) == (2, "")
    assert "nothing was run" in result.stderr
    assert "--record /tmp/aiter.jsonl" in result.stderr
    result = run("print('ran')", "-o", "/proc/no.toml", "--record", str(tmp_path / "r.jsonl"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "-o /tmp/aiter.toml" in result.stderr
    # The directory of the record disappears while the program runs.
    unwritable = {"QOLA_AITER_RECORD": "/proc/no.jsonl"}
    program = f"import os, subprocess, sys; os.environ.update({unwritable!r})\n" + (
        "code = 'import ops; print(ops.call(ops.mha_fwd, 1))'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)"
    )
    result = run(program)
    assert result.returncode == 0
    assert "the build ends here" in result.stdout
    assert result.stderr.count("/proc/no.jsonl") == 1


def test_a_manifest_of_the_user_is_kept(run: Run, tmp_path: Path) -> None:
    """Prevents: a record replaces a user's manifest."""
    (tmp_path / "work/aiter.toml").write_text("[build]\n")
    result = run("print('ran')")
    assert (result.returncode, result.stdout) == (2, "")
    assert "-o OTHER.toml" in result.stderr
    (tmp_path / "work/aiter.toml").unlink()
    for argument in ("first", "second"):
        result = run(f"import ops; ops.call(ops.mha_fwd, '{argument}')")
        assert result.returncode == 0, result.stderr
    # A second run adds to the record of the first run.
    text = (tmp_path / "work/aiter.toml").read_text("utf-8")
    assert all(f"mha_fwd_{argument}_nbias" in text for argument in ("first", "second"))


def test_record_and_manifest_are_different_files(run: Run, tmp_path: Path) -> None:
    """Prevents: the manifest replaces its record."""
    result = run("print('ran')", "-o", "aiter.jsonl")
    assert (result.returncode, result.stdout) == (2, "")
    assert "found     the record's own file" in result.stderr
    record = tmp_path / "a.jsonl"
    record.write_text(json.dumps({"event": "module", "name": "module_norm"}), "utf-8")
    assert aiter_record.main(["--from", str(record), "-o", str(record)]) == 2
    assert Record(record.read_bytes()).modules == ["module_norm"]


def test_programs_without_aiter(run: Run) -> None:
    """Prevents: a manifest without modules, and no message with the reason."""
    assert "nothing to build: no process imported AITER" in run("print()").stderr
    assert "nothing to build: send requests to the server" in run("import ops").stderr


def test_archs_may_be_a_list(tmp_path: Path) -> None:
    """Prevents: two archs are written as one name, which each later command rejects."""
    record, output = tmp_path / "a.jsonl", tmp_path / "a.toml"
    record.write_text(json.dumps({"event": "module", "name": "module_norm"}), "utf-8")
    options = ["--arch", "gfx942,gfx950", "--arch=gfx90a"]
    assert aiter_record.main(["--from", str(record), "-o", str(output), *options]) == 0
    assert load(output).archs == ("gfx90a", "gfx942", "gfx950")


def test_the_hook(environ: dict[str, str], tmp_path: Path) -> None:
    """Prevents: a server that another program starts, such as Kubernetes, cannot be recorded."""
    result = recorder(tmp_path, environ, "--hook", "hook", "--record", "a.jsonl")
    program = "import ops; ops.call(ops.mha_fwd, 'x')"
    script = f'{result.stdout}\ncd / && exec "$0" -c "{program}"'
    subprocess.run(["sh", "-c", script, sys.executable], env=environ, check=True)
    assert Record((tmp_path / "a.jsonl").read_bytes()).modules == ["module_mha_fwd"]


def test_garbage_in_a_record() -> None:
    """Prevents: one torn line makes a record unusable, or a record adds keys to a manifest."""
    valid = json.dumps({"event": "module", "name": "module_norm"})
    lines = [
        valid,
        valid[:20],
        "\x00\xff",
        "[]",
        "{}",
        '"text"',
        "[" * 100_000,
        json.dumps({"event": "module", "name": 'a"\n[qola]'}),
        json.dumps({"event": "module", "name": ["module_norm"]}),
        json.dumps({"event": "function", "name": "pa", "module": "pa", "folder": "pa", "args": 1}),
        json.dumps({"event": "later"}),
        json.dumps(
            {
                **{"event": "function", "name": "pa", "module": "pa", "folder": "pa", "args": {}},
                "call": {"name": "pa", "arguments": {"a\n[qola]": 1}},
            }
        ),
        json.dumps(
            {"event": "aiter", "version": "1\n[qola]", "python": "", "torch": "", "archs": []}
        ),
        json.dumps(
            {"event": "function", "name": "pa", "module": "m", "folder": "f", "args": ["\n[qola]"]}
        ),
    ]
    record = Record("\n".join(lines).encode("utf-8", "surrogateescape"))
    assert record.modules == ["module_norm"]
    assert record.unread == 11
    document = parse_toml(manifest(record))[0]
    assert document == {"build": {"mode": "aiter"}, "modules": [{"name": "module_norm"}]}
    assert os.linesep not in "".join(record.functions)


def record_of_call(**arguments: Any) -> Record:
    """Return the record of one call of a function of csrc/cpp_itfs."""
    event = {"event": "function", "name": "pa_1", "module": "pa", "folder": "pa_1", "args": {}}
    return Record(json.dumps({**event, "call": {"name": "pa", "arguments": arguments}}).encode())


@pytest.mark.parametrize(
    "value",
    ["\U0001f600", "𝄞 漢", 'a"\\', "'''", "ä#=[", "", 2**63 - 1, -1, True, "x" * 5000],
)
def test_arguments_are_read_back(value: str | int) -> None:
    """Prevents: a manifest that is not TOML, or with another argument than the recorded one."""
    record = record_of_call(a=value)
    (table,) = parse_toml(manifest(record, ["gfx942", "\x7f😀"]))[0]["functions"]
    assert table == {"name": "pa", "arguments": {"a": value}}


@pytest.mark.parametrize(
    "value", ["\ud800", "a\nb", "\x00", "\x1b[2J", "\x7f", "\u2028", 2**63, 1.5, None, []]
)
def test_arguments_that_no_server_passes(value: object) -> None:
    """Prevents: a traceback, a manifest that is not TOML, or an escape sequence in it."""
    record = record_of_call(a=value)
    assert (record.functions, record.unread) == ({}, 1)


def test_endless_record(tmp_path: Path) -> None:
    """Prevents: all memory is used for a file that another user fills, or replaces by a device."""
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    ran = recorder(tmp_path, os.environ, "--from", "a.jsonl", "-o", "a.toml")
    assert (ran.returncode, "64 MiB" in ran.stderr) == (2, True), ran.stderr


@pytest.mark.parametrize(
    ("versions", "source"),
    [
        (["0.1.7.post2.dev18"], "0.1.7.post2.dev18"),
        (["0.1.10.dev3+g1a2b3c4d5.d20260801"], "1a2b3c4d5"),
        (["0.1.10.dev3+g1a2b3c4d5"], "1a2b3c4d5"),
        (["0.1.10+rocm7"], "0.1.10+rocm7"),
        (["0.1.7", "0.1.8"], None),
        (["1 2"], None),
        ([], None),
    ],
)
def test_the_source_of_the_recorded_aiter(versions: list[str], source: str | None) -> None:
    """Prevents: modules are silently built from another AITER than the recorded one."""
    events = [{"event": "module", "name": "module_norm"}] + [
        {"event": "aiter", "version": version, "python": "3.12", "torch": "2.9", "archs": []}
        for version in versions
    ]
    record = Record("\n".join(map(json.dumps, events)).encode())
    assert parse_toml(manifest(record))[0].get("qola", {}).get("aiter_commit") == source


def test_later_trees() -> None:
    """Prevents: a record omits modules that AITER opens with ctypes, or variants of later trees."""
    source = """if 1:
        import types
        def _ctypes_call(func, fc_name, md_name):
            return lambda *args: (fc_name, md_name, *args)
        def get_module(md_name): return md_name
        def build_module(md_name, *args, **kwargs): ...
        def compile_ops(_md_name, fc_name=None, gen_func=None, ffi_type="pybind"):
            def decorator(func):
                if ffi_type == "ctypes": return _ctypes_call(func, fc_name, _md_name)
                return lambda *args: get_module(gen_func(*args)["md_name"])
            return decorator
        """
    notes: list[dict[str, Any]] = []

    class Notes(aiter_record._Recorder):
        def note(self, event: str, **values: Any) -> None:
            notes.append({"event": event, **values})

    module = ModuleType("aiter.jit.core")
    exec(source, vars(module))
    aiter_record.record(module.__name__, module, Notes(""))
    opened = module.compile_ops("module_pa", fc_name="pa", ffi_type="ctypes")(lambda: None)
    assert not [note for note in notes if note["event"] == "module"]
    assert opened(1) == ("pa", "module_pa", 1)
    variant = module.compile_ops("module_moe", gen_func=lambda x: {"md_name": f"module_moe_{x}"})
    assert variant(lambda: None)("b") == "module_moe_b"
    assert notes[1:] == [
        {"event": "module", "name": "module_pa"},
        {"event": "variant", "module": "module_moe", "name": "module_moe_b"},
        {"event": "module", "name": "module_moe_b"},
    ]
