"""A user with a manifest and a published bundle, who runs qola."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pytest
import urllib3

from qola.build.setup import resolve_build
from qola.cli import main
from qola.plan.spec import BuildRequest, BuildSpec
from qola.prebuilt import fetch, options, repository_rule, signature
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.key import Key
from qola.prebuilt.publish import publish
from qola.prebuilt.sources import DirectorySource, Transport
from tests.servers.http_files import Files, serving
from tests.support.folders import write

MANIFEST = """\
[qola]
namespace = "left"
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
"""
LIBRARY_FILE = "lib/left_libmha_fwd.so"
SIGNED = "--public-key=k.pub"
RETRY = urllib3.Retry(4, backoff_factor=0.001, retry_after_max=1)
# Random bytes, which do not compress: a download arrives in several parts.
LIBRARY = b"\x7fELF" + random.Random(7).randbytes(20_000)


def write_bundle(directory: Path, library: bytes = LIBRARY) -> Path:
    """Write a directory with the files that every bundle has."""
    modules = [{"name": "libmha_fwd", "library": LIBRARY_FILE}]
    record = {"schema": 1, "name": "left", "namespace": "left", "archs": ["gfx950"]}
    files = {LIBRARY_FILE: library, "include/qola_config.h": b"#pragma once\n"}
    files["manifest.json"] = json.dumps({**record, "modules": modules}).encode()
    return write(directory, files)


@dataclass
class User:
    """A user with a manifest, a cache and HTTP servers; published/ contains the bundle."""

    directory: Path
    key: Key
    stack: ExitStack
    environ: dict[str, str]
    capsys: pytest.CaptureFixture[str]

    def __post_init__(self) -> None:
        self.published, self.output = self.directory / "published", self.directory / "out"
        self.record = self.key.record_name
        self.signature = f"{self.record}{signature.SUFFIX}"
        self.archive = self.key.archive_name

    def run(self, command: str, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run qola, check its exit code, and return stdout and stderr."""
        command_line = [
            word if word.startswith("-") else f"--prebuilt={word}" for word in arguments
        ]
        output = () if command == "publish" else ("-o", "out")
        self.capsys.readouterr()
        command_line = [command, "-m", "left.toml", *output, *command_line]
        exit_code = main(command_line, self.environ, directory=self.directory)
        out, err = self.capsys.readouterr()
        assert exit_code == code, err
        return out, err

    def fetch(self, *arguments: str, code: int = 0) -> str:
        """Run qola fetch."""
        return self.run("fetch", *arguments, code=code)[1]

    def build(self, *arguments: str, code: int = 0) -> str:
        """Run qola build."""
        return self.run("build", *arguments, code=code)[1]

    def manifest(self, addition: str) -> None:
        """Write the manifest with an addition."""
        (self.directory / "left.toml").write_text(MANIFEST + addition)

    def serve(self, content: dict[str, bytes] | None = None) -> Files:
        """Serve the published files, or other files."""
        if content is None:
            content = {path.name: path.read_bytes() for path in self.published.iterdir()}
        files = Files({f"/{name}": data for name, data in content.items()})
        return self.stack.enter_context(serving(files))

    def put(self, bundle: str, *, key: Key | None = None, overwrite: bool = False) -> bool:
        """Publish a bundle, and return whether files were written."""
        archive = self.directory / "archive.tar.gz"
        packed_archive = pack_bundle(self.directory / bundle, archive)
        secret = signature.read_secret_key(self.directory / "k.key", "")
        destination = DirectorySource(self.published)
        return publish(
            key or self.key, archive, packed_archive, destination, secret, overwrite=overwrite
        ).written


@pytest.fixture
def user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[User]:
    """A user whose bundle is published and signed by key k."""
    # Shorten the pauses between attempts, which other tests measure.
    monkeypatch.setattr(options, "Transport", partial(Transport, retry=RETRY))
    monkeypatch.setattr("qola.prebuilt.key.ruleset_digest", lambda root: "0" * 64)
    (tmp_path / "left.toml").write_text(MANIFEST)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    # Without a bundle, a build fails because it cannot find Bazel.
    environ |= {"PATH": "", "QOLA_BAZEL": "no-such-bazel"}
    request = BuildRequest(manifest_path=tmp_path / "left.toml")
    key = fetch.key_of(resolve_build(request, environ), (), environ)
    signature.write_pair(tmp_path / "k", "")
    write_bundle(tmp_path / "bundle")
    write_bundle(tmp_path / "other", b"other")
    with ExitStack() as stack:
        new_user = User(tmp_path, key, stack, environ, capsys)
        new_user.put("bundle")
        yield new_user


def repository(user: User, manifest: str, look_up: str) -> str:
    """Return the BUILD file of a manifest's repository whose source is the published bundle."""
    file = user.directory / "left.toml"
    file.write_text(manifest)
    output = user.directory / look_up
    output.mkdir(exist_ok=True)
    rocm = user.directory / "rocm.json"
    rocm.write_text('{"origin": "pinned"}')
    request = BuildRequest(file, BuildSpec(("gfx950",)))
    source = resolve_build(request, user.environ).aiter.source
    pin = json.dumps({"kind": "wheel", **asdict(source)})
    flags = {"manifest": file, "display": file.name, "repository": "qola_left", "aiter": pin}
    flags |= {"rocm": rocm, "folder": user.directory, "place": "qola.prebuilt"}
    flags |= {"url": user.published, "look-up": look_up, "output": output}
    assert repository_rule.main([f"--{name}={value}" for name, value in flags.items()]) == 0
    return (output / "BUILD.bazel").read_text()
