"""Runs nginx from pinned packages as a Bazel remote cache, without installation.

    ./bazelw run //tools/remote:nginx_cache -- --directory ~/cache

`--print-config` prints the configuration for another nginx.
"""

from __future__ import annotations

import argparse
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tools.remote.loopback import listening
from tools.remote.programs import Programs

CONFIG = """\
# Written by qola's tools/remote/nginx_cache.py: a Bazel remote cache over HTTP.
{user}worker_processes 2;
pid "{directory}/nginx-{port}.pid";
error_log stderr warn;
events {{
    worker_connections 1024;
}}
http {{
{http}    access_log {access_log};
    # Where a PUT is written first: on the file system of the blobs, where it then appears whole.
    client_body_temp_path "{directory}/partial";
    proxy_temp_path "{directory}/unused";
    fastcgi_temp_path "{directory}/unused";
    uwsgi_temp_path "{directory}/unused";
    scgi_temp_path "{directory}/unused";
    client_max_body_size 0;
    keepalive_timeout 300s;
    keepalive_requests 100000;
    server {{
        listen {address}:{port}{ssl};
{server}        root "{directory}/blobs";
        # A miss is not an error.
        log_not_found off;
        location / {{
            return 404;
        }}
        # A prefix in the URL (http://HOST/team) is a cache of its own.
        location ~ "^/(.*/)?(ac|cas)/[0-9a-f]{{64}}$" {{
            dav_methods PUT;
            create_full_put_path on;
{location}        }}
    }}
}}
"""


@dataclass(frozen=True)
class Settings:
    """Settings of a cache server.

    Attributes:
        directory: absolute path of its state; blobs/ in it contains the cache, by URL path.
        writers: password file (htpasswd format) of users who may write; None: everybody.
        readers: password file of users who may read; None: everybody.
        certificate: PEM file of the server's certificate; None: plain HTTP.
        client_ca: PEM file of the authority of writers' certificates; None: none required.
        access_log: file with a line "METHOD STATUS PATH USER" per request; None: no log.
    """

    directory: Path
    port: int
    address: str = "127.0.0.1"
    writers: Path | None = None
    readers: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    access_log: Path | None = None

    @property
    def url(self) -> str:
        """The URL for --remote_cache."""
        return f"http{'s' if self.certificate else ''}://{self.address}:{self.port}"


def _lines(indent: int, *directives: str) -> str:
    return "".join(f"{' ' * indent}{directive}\n" for directive in directives)


def configuration(settings: Settings, user: str | None = None) -> str:
    """Return the nginx configuration file.

    Args:
        user: account of the worker processes; None unless root starts nginx.
    """
    http, server, location = [], [], []
    if settings.access_log:
        http.append('log_format cache "$request_method $status $uri $remote_user";')
    if settings.certificate:
        server += [
            f'ssl_certificate "{settings.certificate}";',
            f'ssl_certificate_key "{settings.key}";',
        ]
    if settings.client_ca:
        http += [
            'map "$request_method $ssl_client_verify" $refused {',
            "    default 1;",
            '    "~^(GET|HEAD) " 0;',
            '    "~ SUCCESS$" 0;',
            "}",
        ]
        server += [
            f'ssl_client_certificate "{settings.client_ca}";',
            "ssl_verify_client optional;",
        ]
        location += ["if ($refused) {", "    return 403;", "}"]
    if settings.readers:
        location += ['auth_basic "readers";', f'auth_basic_user_file "{settings.readers}";']
    if settings.writers:
        location += [
            "limit_except GET {",
            '    auth_basic "writers";',
            f'    auth_basic_user_file "{settings.writers}";',
            "}",
        ]
    return CONFIG.format(
        access_log=f'"{settings.access_log}" cache' if settings.access_log else "off",
        address=settings.address,
        directory=settings.directory,
        http=_lines(4, *http),
        location=_lines(12, *location),
        port=settings.port,
        server=_lines(8, *server),
        ssl=" ssl" if settings.certificate else "",
        user=f"user {user};\n" if user else "",
    )


def command(nginx: Path, settings: Settings) -> list[str]:
    """Prepare the directory and return the command line of the server.

    Args:
        nginx: the program, in the directory of its unpacked packages.
    """
    for name in ("blobs", "partial", "unused"):
        (settings.directory / name).mkdir(parents=True, exist_ok=True)
    user = None
    if os.geteuid() == 0:
        account = pwd.getpwuid(0)
        user = f"{account.pw_name} {account.pw_name}"
    config = settings.directory / f"nginx-{settings.port}.conf"
    config.write_text(configuration(settings, user), encoding="utf-8")
    return [
        *Programs(nginx.resolve().parents[2]).command("nginx"),
        *("-e", "stderr", "-p", str(settings.directory), "-c", str(config), "-g", "daemon off;"),
    ]


@contextmanager
def serving(nginx: Path, settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the end of the context.

    Raises:
        RuntimeError: it ended, or did not answer in time; its messages are on standard error.
    """
    argv = command(nginx, settings)
    with listening(argv, settings.port, name="nginx", address=settings.address) as process:
        yield process


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="nginx_cache", description=__doc__.splitlines()[0])
    paths = {
        "writers": "password file of users who may write (default: everybody)",
        "readers": "password file of users who may read (default: everybody)",
        "certificate": "PEM file of the server's certificate: HTTPS",
        "key": "PEM file of its private key",
        "client-ca": "PEM file of the authority of writers' certificates",
        "access-log": "file with a line per request",
    }
    parser.add_argument("--nginx", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, required=True, help="directory of the cache")
    parser.add_argument("--address", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8980, help="TCP port")
    for name, text in paths.items():
        parser.add_argument(f"--{name}", type=Path, help=text)
    parser.add_argument("--print-config", action="store_true", help="print nginx.conf and exit")
    parsed = parser.parse_args(arguments)
    if bool(parsed.certificate) != bool(parsed.key):
        parser.error("--certificate and --key require each other")
    if parsed.client_ca and not parsed.certificate:
        parser.error("--client-ca needs --certificate and --key")
    return parsed


def main() -> int:
    """Serve until interrupted."""
    parsed = parse(sys.argv[1:])
    # `bazel run` changes the directory.
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))

    def absolute(value: Any) -> Any:
        return (here / value.expanduser()).absolute() if isinstance(value, Path) else value

    names = [field.name for field in fields(Settings)]
    settings = Settings(**{name: absolute(getattr(parsed, name)) for name in names})
    if parsed.print_config:
        print(configuration(settings), end="")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with serving(parsed.nginx, settings) as process:
            print(f"nginx_cache: --remote_cache={settings.url}", flush=True)
            return process.wait()
    except KeyboardInterrupt:
        return 0
    except RuntimeError as error:
        print(f"nginx_cache: error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
