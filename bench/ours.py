"""Builds with this project: Bazel in workspaces of `qola build`, each with its own output base."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.compiles import TIMED, Compile, run_commands, run_host_passes
from bench.processes import BenchError, Run
from bench.setting import ROOT, Setting
from qola.build import workspace
from qola.build.bazel import child_environment
from qola.build.setup import ResolvedBuild
from qola.checkout.source import AiterSource, WheelSource
from qola.common.layout import KERNEL_COMPILE
from qola.manifest.load import loads
from qola.report.execution_log import Spawn, read_spawns
from qola_base.errors import Finding
from qola_base.files import sha256_of
from tools.remote.loopback import free_port, listening


@dataclass(frozen=True)
class Repeated:
    """Compiles that Bazel logged.

    Attributes:
        directory: a directory with their inputs.
        commands: shell commands by batch, which run through TIMED, the longest first.
        digests: sha256 of the object that Bazel built, by batch.
    """

    directory: Path
    commands: Mapping[str, str]
    digests: Mapping[str, str]

    def compile(self, setting: Setting, *, host: bool) -> dict[str, dict[str, Compile]]:
        """Compile all batches; also run their host passes.

        Raises:
            BenchError: a compile failed, or its object differs from that of Bazel's compile.
        """
        found = {"kernel": run_commands(setting, self.directory, self.commands)}
        for name, digest in self.digests.items():
            repeated = sha256_of(self.directory / f"{name}.o")
            if repeated != digest:
                raise BenchError(Finding(f"{name}.o", f"sha256 {repeated}", f"{digest}, as Bazel"))
        if host:
            found["host"] = run_host_passes(setting, self.directory, self.commands)
        return found


#: An output of Bazel in an argument of a compile: its configuration, and its path below that.
_OUTPUT = re.compile(r"bazel-out/([^/]+)/(bin/.+)")


def _compiled(spawn: Spawn) -> str:
    """Return the name of a compile's source, "" for other actions.

    The source is a batch, a kernel instance or one of a torch module's sources.
    """
    if spawn.mnemonic != KERNEL_COMPILE:
        return ""
    # module_norm.norm_kernels
    return spawn.name.partition(".")[2] or spawn.name


@dataclass
class Ours:
    """A workspace and its output base.

    Attributes:
        directory: contains workspace/ and output_base/.
    """

    setting: Setting
    directory: Path
    modules: Sequence[str]
    cache: Path
    options: Sequence[str] = ()

    @property
    def output_base(self) -> Path:
        """Bazel's directory for this workspace."""
        return self.directory / "output_base"

    def write(self, manifest: str, pin: Mapping[str, str]) -> None:
        """Write the workspace.

        Args:
            pin: package, version and sha256 of the AITER wheel.
        """
        loaded, file = loads(manifest, file="bench.toml"), Path("bench.toml")
        aiter = AiterSource(WheelSource(**pin))
        chosen = ResolvedBuild(loaded, file, loaded.modules, aiter)
        content = workspace.Workspace(chosen, (), ROOT, self.cache)
        directory = self.directory / "workspace"
        workspace.write(directory, ROOT, content.files(directory, self.output_base))

    def build(self, *more: str) -> Run:
        """Build the libraries with further options, such as --nobuild.

        Raises:
            BenchError: Bazel failed.
        """
        return self.bazel(
            "build",
            f"--jobs={self.setting.jobs}",
            *self.options,
            *more,
            "--",
            *workspace.targets(self.modules),
        )

    def logged_build(self) -> tuple[Run, list[Spawn]]:
        """Build the libraries; also return the actions of the execution log."""
        log = self.directory / "execution.json"
        run = self.build(f"--execution_log_json_file={log}")
        return run, list(read_spawns(log))

    def bazel(self, command: str, *arguments: str) -> Run:
        """Run a Bazel command in the workspace."""
        return processes.run(
            [
                *("bazel", f"--output_base={self.output_base}", "--max_idle_secs=600"),
                *(command, "--color=no", "--curses=no", *arguments),
            ],
            self.setting.log,
            cwd=self.directory / "workspace",
            environ=child_environment(self.setting.environ),
            roots=self._server,
        )

    def library(self, module: str) -> Path:
        """Return the path of a module's library."""
        files = self.bazel("cquery", *self.options, "--output=files", f"//:{module}").output.split()
        found = sorted({name for name in files if name.endswith(".so")})
        if len(found) != 1:
            names = ", ".join(found) or "none"
            raise BenchError(Finding(f"//:{module}", f"libraries: {names}", "one library"))
        root = self.bazel("info", "execution_root").output.strip()
        return Path(root) / found[0]

    def external(self, name: str, inside: str) -> Path:
        """Return a path in a repository by its apparent name."""
        found = sorted(self.output_base.glob(f"external/*{name}/{inside}"))
        if len(found) != 1:
            count = f"{len(found)} directories external/*{name}/{inside}"
            raise BenchError(Finding("Bazel's output base", count, "one"))
        return found[0]

    def repeated(self, spawns: Iterable[Spawn], names: Collection[str]) -> Repeated:
        """Return logged compiles, to run them again outside of Bazel.

        Args:
            spawns: actions of a build.
            names: names of batches, and of kernel instances outside batches.

        Raises:
            BenchError: a compile is not in the log.
        """
        directory, commands, digests = self.directory / "repeated", {}, {}
        outputs = Path(self.bazel("info", "output_path").output.strip())
        for spawn in sorted(spawns, key=lambda spawn: -spawn.seconds):
            if (name := _compiled(spawn)) in names:
                arguments = list(spawn.arguments)
                if "--" in arguments:
                    # compile_batch.sh BATCH KERNEL... -- COMPILER ARGUMENT...
                    arguments = [*arguments[arguments.index("--") + 1 :], arguments[1]]
                place = self._linked(directory, outputs, arguments)
                arguments[arguments.index("-o") + 1] = f"../{name}.o"
                environ = [f"{key}={value}" for key, value in spawn.environment.items()]
                run = [str(TIMED), "env", "-i", "-C", place.name, *environ]
                commands[name] = shlex.join([*run, *arguments])
                (digests[name],) = (
                    digest for path, digest in spawn.outputs.items() if path.endswith(".o")
                )
        if missing := sorted(set(names) - commands.keys()):
            text = f"no action for {len(missing)} batches, such as {missing[0]}"
            raise BenchError(Finding("execution log", text, "an action for each batch"))
        return Repeated(directory, commands, digests)

    def _linked(self, directory: Path, outputs: Path, arguments: Sequence[str]) -> Path:
        """Return a directory in which the inputs of a compile have the paths of its sandbox.

        Args:
            outputs: Bazel's directory of all configurations.
            arguments: of the compile. Paths of outputs have "cfg" for Bazel's configuration.
        """
        # The source is the last one.
        paths = (_OUTPUT.search(argument) for argument in reversed(arguments))
        read = next((path for path in paths if path and not path[2].endswith(".o")), None)
        place, links = directory / "sources", {"external": self.output_base / "external"}
        if read:
            configuration, inside = read.groups()
            found = list(outputs.glob(f"*/{inside}"))
            if len(found) != 1:
                text = f"{len(found)} configurations"
                raise BenchError(Finding(f"{outputs}/*/{inside}", text, "one with this file"))
            actual = outputs / found[0].relative_to(outputs).parts[0]
            place = directory / actual.name
            links[f"bazel-out/{configuration}"] = actual
        for name, target in links.items():
            link = place / name
            if not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
        return place

    def shutdown(self) -> None:
        """Stop the server."""
        if (self.directory / "workspace").is_dir():
            self.bazel("shutdown")

    def _server(self) -> list[int]:
        try:
            text = (self.output_base / "server/server.pid.txt").read_text(encoding="utf-8")
        except OSError:
            return []
        return [int(text)] if text.strip().isdigit() else []


@contextmanager
def stopped_at_end(ours: Ours) -> Iterator[Ours]:
    """Stop the Bazel server at the end of the block."""
    try:
        yield ours
    finally:
        ours.shutdown()


def remove(directory: Path) -> None:
    """Remove a directory that contains read-only files of Bazel."""
    subprocess.run(["chmod", "-R", "u+w", "--", str(directory)], check=False, capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)


def fetch_cache_server(setting: Setting) -> Path:
    """Fetch //tools/remote:nginx_cache; return a script that starts it."""
    bazel = ["bazel", f"--output_base={setting.work / 'nginx_output_base'}"]
    path = setting.work / "nginx.sh"
    arguments = ["--symlink_prefix=/", f"--script_path={path}", "//tools/remote:nginx_cache"]
    environ = child_environment(setting.environ)
    for command in (["run", *arguments], ["shutdown"]):
        processes.run([*bazel, *command], setting.log, cwd=ROOT, environ=environ)
    return path


@contextmanager
def cache_server(start: Path, directory: Path, log: Path) -> Iterator[str]:
    """Serve a remote cache during the block, and yield its URL.

    Raises:
        BenchError: the server does not answer.
    """
    port, name = free_port(), "//tools/remote:nginx_cache"
    argv = [str(start), "--directory", str(directory), "--port", str(port)]
    with ExitStack() as stack:
        try:
            stack.enter_context(listening(argv, port, name=name, log=log))
        except RuntimeError as error:
            raise BenchError(Finding(name, str(error), "a server that answers")) from None
        yield f"http://127.0.0.1:{port}"
