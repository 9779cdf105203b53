"""The remote cache that bench/run measures with: //tools/remote:nginx_cache."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench import processes
from bench.errors import BenchError
from bench.setting import ROOT
from qola.bazel_run import child_environment
from qola.errors import Finding

_START_SECONDS = 30


def script(work: Path, log: Path, environ: Mapping[str, str]) -> Path:
    """Fetch the server and return the script that starts it.

    Args:
        work: directory of this run.
        log: file for what Bazel says.
        environ: the environment of this process.
    """
    bazel = ["bazel", f"--output_base={work / 'nginx_output_base'}"]
    path = work / "nginx.sh"
    outside = child_environment(environ)
    processes.run(
        [
            *bazel,
            "run",
            "--symlink_prefix=/",
            f"--script_path={path}",
            "//tools/remote:nginx_cache",
        ],
        log,
        cwd=ROOT,
        environ=outside,
    )
    processes.run([*bazel, "shutdown"], log, cwd=ROOT, environ=outside)
    return path


@contextmanager
def serving(start: Path, directory: Path, log: Path) -> Iterator[str]:
    """Serve a cache until the block ends.

    Args:
        start: the script, see `script`.
        directory: where the cache is kept.
        log: file for what the server says.

    Returns:
        What --remote_cache takes.

    Raises:
        BenchError: it does not answer.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [start, "--directory", directory, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                said = "\n".join(log.read_text(encoding="utf-8").splitlines()[-10:])
                raise BenchError(
                    Finding("//tools/remote:nginx_cache", said, "a server that answers")
                )
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
