"""Runs a small remote execution server in the foreground: bazel run //tools/remote:server."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from tools.remote.programs import unpacked
from tools.remote.reapi import reapi_server


def main() -> int:
    """Run the server until it is interrupted; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="bazel run //tools/remote:server --",
        description="A remote execution server on the loopback interface, for experiments. Its "
        "storage is temporary.",
    )
    parser.add_argument("--port", type=int, default=8980, help="TCP port (default: 8980)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="concurrent actions (default: cores)"
    )
    parser.add_argument(
        "--machine-visible",
        action="store_true",
        help="actions see the machine's programs and files, not only their inputs and /bin/sh",
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="qola-remote-", ignore_cleanup_errors=True) as name,
            reapi_server(
                unpacked("buildbox", os.environ["QOLA_BUILDBOX"]),
                unpacked("nginx", os.environ["QOLA_NGINX"]),
                Path(name) / "server",
                port=args.port,
                jobs=args.jobs,
                isolated=not args.machine_visible,
            ) as server,
        ):
            print(
                f"listening; in another terminal:\n"
                f"  ./bazelw build --config=rbe --remote_executor={server.address} "
                f"//:quickstart_libmha_fwd\nCtrl-C ends it",
                flush=True,
            )
            signal.pause()
    except KeyboardInterrupt:
        print()
    except RuntimeError as error:
        print(f"server: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
