"""This project's way: Bazel in workspaces as `qola build` makes them, each with its output base."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.errors import BenchError
from bench.processes import Run
from bench.setting import ROOT
from qola.build import workspace
from qola.build.bazel import child_environment
from qola.checkout.prepare import WheelSource
from qola.checkout.source import AiterSource
from qola.errors import Finding
from qola.report.execution_log import Spawn, read_spawns

_STOP_SECONDS = 60


@dataclass
class Ours:
    """A workspace with an output base of its own.

    Attributes:
        directory: what is below: workspace/ and output_base/.
        jobs: actions at a time.
    """

    directory: Path
    modules: Sequence[str]
    disk_cache: Path
    jobs: int
    log: Path
    environ: Mapping[str, str]
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
        made = workspace.Workspace(
            name="bench",
            manifest=manifest,
            modules=tuple(self.modules),
            ruleset=ROOT,
            aiter=AiterSource(WheelSource(**pin)),
            disk_cache=self.disk_cache,
        )
        directory = self.directory / "workspace"
        version = (ROOT / ".bazelversion").read_text(encoding="utf-8")
        workspace.write(directory, made.files(version, directory, self.output_base))

    def build(self, *more: str) -> Run:
        """Build the libraries.

        Args:
            more: further options, such as --nobuild.

        Raises:
            BenchError: Bazel failed.
        """
        return self.bazel(
            "build",
            f"--jobs={self.jobs}",
            *self.options,
            *more,
            "--",
            *workspace.targets(self.modules),
        )

    def logged_build(self) -> tuple[Run, list[Spawn]]:
        """Build, and return the actions besides."""
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
            self.log,
            cwd=self.directory / "workspace",
            environ=child_environment(self.environ),
            roots=self._server,
        )

    def library(self, module: str) -> Path:
        """Return the path of a module's library.

        Raises:
            BenchError: there is not just one.
        """
        files = self.bazel("cquery", "--output=files", f"//:{module}").output.split()
        found = sorted({name for name in files if name.endswith(".so")})
        if len(found) != 1:
            names = ", ".join(found) or "none"
            raise BenchError(Finding(f"//:{module}", f"libraries: {names}", "one library"))
        root = self.bazel("info", "execution_root").output.strip()
        return Path(root) / found[0]

    def external(self, name: str, inside: str) -> Path:
        """Return the directory of a repository, whatever its canonical name is."""
        found = sorted(self.output_base.glob(f"external/*{name}/{inside}"))
        if len(found) != 1:
            finding = f"{len(found)} directories external/*{name}/{inside}"
            raise BenchError(Finding("Bazel's output base", finding, "one"))
        return found[0]

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
    """Stop the server when the block ends, however it ends."""
    try:
        yield ours
    finally:
        ours.shutdown()


def remove(directory: Path) -> None:
    """Remove a directory in which Bazel has made things read-only."""
    subprocess.run(["chmod", "-R", "u+w", "--", str(directory)], check=False, capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)
