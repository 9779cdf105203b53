"""A small remote execution server on the loopback interface: buildbox-casd behind nginx.

buildbox-casd is storage, action cache and execution in one process. It announces version 2.1 of the
Remote Execution API and later, but Bazel 7 requires 2.0, whose messages are equal. The proxy
answers GetCapabilities itself and forwards all other calls.
"""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.remote.loopback import free_port, listening
from tools.remote.programs import Programs, shell_root

#: Path of the one method the proxy answers.
GET_CAPABILITIES = "build.bazel.remote.execution.v2.Capabilities/GetCapabilities"
# Requests are not logged; a blob may have any size, and an action may take an hour.
_NGINX = """daemon off;
{user}error_log stderr warn;
pid nginx.pid;
# A client uploads hundreds of blobs at a time; each is a connection to casd.
worker_rlimit_nofile {files};
events {{
  worker_connections {connections};
}}
http {{
  access_log off;
  client_body_temp_path tmp;
  proxy_temp_path tmp;
  fastcgi_temp_path tmp;
  uwsgi_temp_path tmp;
  scgi_temp_path tmp;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  upstream casd {{
    server 127.0.0.1:{casd_port};
    keepalive 256;
  }}
  server {{
    listen 127.0.0.1:{port};
    http2 on;
    root answers;
    location = /{method} {{
      # A file only answers GET; gRPC uses POST.
      error_page 405 =200 $uri;
      default_type application/grpc;
      add_trailer grpc-status 0 always;
    }}
    location / {{
      grpc_pass grpc://casd;
      grpc_read_timeout 1h;
      grpc_send_timeout 1h;
    }}
  }}
}}
"""
#: A gRPC message: ServerCapabilities of version 2.0, with execution and SHA-256. A field is its
#: number and kind, for a message its size, and the content.
_CAPABILITIES = bytes.fromhex(
    "00 0000001e"  # not compressed; size
    # cache_capabilities: SHA-256; the action cache may be written; batches of 4 MiB, which is
    # gRPC's default; absolute links are allowed.
    "0a0e 0a0101 12020801 2080808002 2802"
    "1204 0801 1001"  # execution_capabilities: SHA-256, enabled
    "2202 0802 2a02 0802"  # the lowest and the highest version of the API: 2.0
)


@dataclass(frozen=True)
class Server:
    """A running server, with its address, log and storage directory."""

    address: str
    log: Path
    storage: Path


def runner_options(programs: Programs, directory: Path, *, isolated: bool) -> list[str]:
    """Return the options by which a server or worker runs actions; the runner is in directory/bin.

    Args:
        isolated: an action gets a root directory of its own.
    """
    wrappers = directory / "bin"
    wrappers.mkdir()
    programs.wrapper("bwrap", wrappers)
    runner = "buildbox-run-bubblewrap" if isolated else "buildbox-run-hosttools"
    # The server's environment must not be an input of actions.
    arguments = ["--clearenv"]
    if isolated:
        root = shell_root(directory / "root")
        arguments = [f"--ro-bind-mount={root / name}:/{name}" for name in ("bin", "lib", "lib64")]
    return [
        f"--buildbox-run={programs.wrapper(runner, wrappers)}",
        *(f"--runner-arg={argument}" for argument in arguments),
    ]


def _casd_command(
    programs: Programs, directory: Path, port: int, jobs: int, isolated: bool
) -> list[str]:
    return [
        *programs.command("buildbox-casd"),
        f"--bind=127.0.0.1:{port}",
        *runner_options(programs, directory, isolated=isolated),
        f"--jobs={jobs}",
        "--log-level=warning",
        str(directory / "storage"),
    ]


def _nginx_command(programs: Programs, directory: Path, port: int, casd_port: int) -> list[str]:
    (directory / "tmp").mkdir()
    answer = directory / "answers" / GET_CAPABILITIES
    answer.parent.mkdir(parents=True)
    answer.write_bytes(_CAPABILITIES)
    # Root's nginx would become "nobody", who may not read the directory.
    user = "" if os.getuid() else f"user {pwd.getpwuid(0).pw_name};\n"
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = 65536 if limit == resource.RLIM_INFINITY else min(limit, 65536)
    text = _NGINX.format(
        user=user,
        files=files,
        connections=files // 2,
        port=port,
        casd_port=casd_port,
        method=GET_CAPABILITIES,
    )
    (directory / "nginx.conf").write_text(text, "utf-8")
    return [*programs.command("nginx"), "-e", "stderr", "-p", str(directory), "-c", "nginx.conf"]


def running(
    command: Sequence[str], port: int, directory: Path, log: Path
) -> AbstractContextManager[object]:
    """Run a program of a pinned package that listens on a port, until the end of the context."""
    path = f"{directory / 'bin'}:/usr/bin:/bin"
    name = Path(command[3]).name
    return listening(command, port, name=name, log=log, cwd=directory, env={"PATH": path})


@contextmanager
def reapi_server(
    buildbox: Path,
    nginx: Path,
    directory: Path,
    *,
    port: int = 0,
    jobs: int = 2,
    isolated: bool = True,
) -> Iterator[Server]:
    """Run a server until the end of the context.

    Args:
        buildbox: root of the unpacked packages of buildbox.
        directory: directory for its files, missing or empty.
        port: TCP port; 0: any free port.
        isolated: an action only sees its inputs, /bin/sh with its libraries, /dev, /proc and /tmp;
            this requires user namespaces, or root. Otherwise an action sees the machine.

    Raises:
        RuntimeError: a program does not start; with its messages.
    """
    directory.mkdir(parents=True, exist_ok=True)
    casd_port, port = free_port(), port or free_port()
    casd = _casd_command(Programs(buildbox), directory, casd_port, jobs, isolated)
    proxy = _nginx_command(Programs(nginx), directory, port, casd_port)
    log = directory / "server.log"
    with running(casd, casd_port, directory, log), running(proxy, port, directory, log):
        yield Server(f"grpc://127.0.0.1:{port}", log, directory / "storage")
