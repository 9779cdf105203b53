"""The remote cache that bench/run measures with: //tools/remote:nginx_cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import processes
from bench.errors import BenchError
from bench.setting import ROOT
from qola.build.bazel import child_environment
from qola.errors import Finding
from tools.remote.loopback import free_port, listening


def script(work: Path, log: Path, environ: Mapping[str, str]) -> Path:
    """Fetch the server and return the script that starts it."""
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

    Returns:
        What --remote_cache takes.

    Raises:
        BenchError: it does not answer.
    """
    port = free_port()
    argv = [str(start), "--directory", str(directory), "--port", str(port)]
    with ExitStack() as stack:
        try:
            stack.enter_context(listening(argv, port, name="//tools/remote:nginx_cache", log=log))
        except RuntimeError as error:
            found = Finding("//tools/remote:nginx_cache", str(error), "a server that answers")
            raise BenchError(found) from None
        yield f"http://127.0.0.1:{port}"
