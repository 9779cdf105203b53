"""Machines that get their Debian packages from a server on the loopback interface.

The server has the layout of Debian's archive and snapshots: URI/dists/SUITE/InRelease and
URI/pool/...
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.servers.deb_files import deb, sha256
from tests.servers.http_files import Files

ROOT = Path(__file__).absolute().parents[2]
EXIT_ENVIRONMENT = 36
TIME = "20261030T140801Z"
SNAPSHOT = "https://snapshot.debian.org/archive/debian"
DEBIAN = b"Origin: Debian\nSuite: testing\nDate: Fri, 30 Oct 2026 08:08:01 UTC\n"
APT_HELPER = "/usr/lib/apt/apt-helper"


PACKAGES = {name: deb({f"./usr/{name}": name}) for name in ("alpha", "beta+b1", "gamma~x")}


def path(name: str) -> str:
    """Return the path of a package below a mirror."""
    return f"pool/main/{name}_1_all.deb"


def lock(packages: dict[str, bytes], time: str = TIME) -> str:
    """Return the text of a lock in the format of --refresh-lock."""
    lines = [f"# snapshot: {time}", "# download-megabytes: 1", "# unpacked-megabytes: 1"]
    for name, data in packages.items():
        lines.append(f"{name} 1 {sha256(data)} forky {len(data)} {path(name)} all")
    return "\n".join(lines) + "\n"


def mirror(base: str, *names: str, release: bytes = DEBIAN) -> dict[str, bytes]:
    """Return the files of a mirror below a path: an archive with some of the packages."""
    content = {f"/{base}/dists/forky/InRelease": release}
    return content | {f"/{base}/{path(name)}": PACKAGES[name] for name in names}


def copy_bazelw(root: Path) -> Path:
    """Copy bazelw and its own files into a new directory, and return it."""
    root.mkdir()
    for name in ("bazelw", ".bazelversion"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "tools/setup", root / "tools/setup")
    return root


def with_functions(workspace: Path, text: str) -> list[str]:
    """Return a command that runs shell text with the functions of bazelw and manage.sh."""
    script = (workspace / "bazelw").read_text().replace('\nmain "$@"\n', "\n")
    functions = workspace / "functions.sh"
    functions.write_text(script)
    start = f'source "{functions}"; settings; source "$SETUP/manage.sh"; REPORT=()'
    return ["bash", "-c", f"{start}; {text}"]


@dataclass
class Machine:
    """A checkout, a home directory, and the machine's apt sources.

    Attributes:
        programs: value of PATH.
        variables: additional environment variables.
    """

    directory: Path
    server: Files
    programs: str
    variables: dict[str, str]

    @property
    def workspace(self) -> Path:
        """The checkout."""
        return self.directory / "a workspace"

    def sources(self, *bases: str, suite: str = "forky") -> None:
        """Make the machine's apt sources name paths of the server."""
        lines = [f"deb [trusted=yes] {self.server.url}/{base} {suite} main\n" for base in bases]
        (self.directory / "sources.list").write_text("".join(lines))

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run shell text with bazelw's functions in debs/, the directory of fetched packages."""
        with self._start(text) as process:
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run_and_kill(self, text: str, seconds: float) -> None:
        """Run shell text like `run`, and kill it with all its children after some time."""
        with self._start(text) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _start(self, text: str) -> subprocess.Popen[str]:
        (self.directory / "debs").mkdir(exist_ok=True)
        environment = {
            "HOME": str(self.directory),
            "PATH": self.programs,
            "APT_CONFIG": str(self.directory / "apt.conf"),
            "no_proxy": "127.0.0.1",
            **self.variables,
        }
        return subprocess.Popen(
            with_functions(self.workspace, text),
            env=environment,
            cwd=self.directory / "debs",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fetched(self) -> set[str]:
        """Return the names of the fetched packages."""
        return {file.name.split("_")[0] for file in (self.directory / "debs").glob("*.deb")}


def replace(file: Path, old: str, new: str) -> None:
    """Replace a text that must exist."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def remove_programs(machine: Machine, *names: str) -> None:
    """Remove programs from PATH; with apt, also remove apt-helper."""
    programs = machine.directory / "programs"
    programs.mkdir()
    for directory in machine.programs.split(":"):
        for program in sorted(Path(directory).glob("*")):
            link = programs / program.name
            if not program.name.startswith(names) and not os.path.lexists(link):
                link.symlink_to(program)
    machine.programs = str(programs)
    if "apt" in names:
        machine.variables["APT_HELPER"] = "/no/apt-helper"
