"""Runs workers of a BuildGrid on this machine: bazel run //tools/remote:worker -- --help."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools.remote.loopback import free_port
from tools.remote.programs import Programs, unpacked
from tools.remote.reapi import runner_options, running

#: Properties of this machine, from the platform lexicon of the Remote Execution API.
PLATFORM = {"ISA": "x86-64", "OSFamily": "linux"}
# Limits the load of a worker that ends immediately.
RESTART_SECONDS = 5.0


def storage_command(programs: Programs, grid: str, port: int, size: str, cache: Path) -> list[str]:
    """Return the command of a local cache for inputs, so that a compiler is fetched once."""
    return [
        *programs.command("buildbox-casd"),
        f"--bind=127.0.0.1:{port}",
        f"--cas-remote={grid}",
        f"--quota-high={size}",
        "--log-level=warning",
        str(cache),
    ]


def worker_command(
    programs: Programs, grid: str, port: int, jobs: int, properties: Sequence[str], directory: Path
) -> list[str]:
    """Return the command of a worker, which runs each action in its own root directory."""
    return [
        *programs.command("buildbox-worker"),
        f"--bots-remote={grid}",
        f"--cas-remote=http://127.0.0.1:{port}",
        *runner_options(programs, directory, isolated=True),
        f"--concurrent-jobs={jobs}",
        *(f"--platform={name}={value}" for name, value in sorted(PLATFORM.items())),
        *(f"--platform={text}" for text in properties),
        "--log-level=warning",
    ]


def supervise(command: Sequence[str], environment: dict[str, str]) -> None:
    """Run a program, and restart it when it ends: a worker ends when the grid restarts."""
    while True:
        process = subprocess.Popen(command, env=environment)
        try:
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
        print(f"the worker ended with exit code {code}; restarting it", flush=True)
        time.sleep(RESTART_SECONDS)


def main() -> None:
    """Run workers until interrupted."""
    parser = argparse.ArgumentParser(
        prog="bazel run //tools/remote:worker --",
        description="Workers of a BuildGrid. An action sees only its inputs and /bin/sh.",
    )
    parser.add_argument("--grid", required=True, help="the BuildGrid, such as http://HOST:50051")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="concurrent actions (default: cores)"
    )
    parser.add_argument(
        "--cache", type=Path, help="directory for inputs of actions (default: a temporary one)"
    )
    parser.add_argument("--cache-size", default="20G", help="its limit (default: 20G)")
    parser.add_argument(
        "--property", action="append", default=[], help="an additional NAME=VALUE of this worker"
    )
    args = parser.parse_args()
    programs = Programs(unpacked("buildbox", os.environ["QOLA_BUILDBOX"]))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="qola-worker-", ignore_cleanup_errors=True) as name:
        directory, port = Path(name), free_port()
        # `bazel run` changes the directory.
        here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
        cache = (here / args.cache.expanduser() if args.cache else directory / "cache").resolve()
        storage = storage_command(programs, args.grid, port, args.cache_size, cache)
        worker = worker_command(programs, args.grid, port, args.jobs, args.property, directory)
        try:
            with running(storage, port, directory, directory / "storage.log"):
                print(f"{args.jobs} workers for {args.grid}; Ctrl-C ends them", flush=True)
                supervise(worker, {"PATH": f"{directory / 'bin'}:/usr/bin:/bin"})
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
