"""Somebody with a manifest and a published bundle of it, who asks qola for it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pytest
import urllib3

from qola.build.forms import Forms
from qola.build.setup import resolve_build
from qola.cli import main
from qola.plan.spec import BuildRequest, BuildSpec
from qola.prebuilt import fetch, identity, repository_rule, signature
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.http import Transport
from qola.prebuilt.key import Key
from qola.prebuilt.publish import publish
from qola.prebuilt.record import archive_name, record_name
from qola.prebuilt.sources import DirectorySource
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
# Of a size that does not shrink: it arrives in several parts.
LIBRARY = b"\x7fELF" + random.Random(7).randbytes(20_000)


def write_bundle(directory: Path, library: bytes = LIBRARY) -> Path:
    """A directory with what a bundle has at least."""
    modules = [{"name": "libmha_fwd", "library": LIBRARY_FILE}]
    record = {"schema": 1, "name": "left", "namespace": "left", "archs": ["gfx950"]}
    files = {LIBRARY_FILE: library, "include/qola_config.h": b"#pragma once\n"}
    files["manifest.json"] = json.dumps({**record, "modules": modules}).encode()
    return write(directory, files)


@dataclass
class User:
    """Somebody with a manifest, whose bundle is in published/, a cache, and servers to ask."""

    directory: Path
    key: Key
    stack: ExitStack
    environ: dict[str, str]
    capsys: pytest.CaptureFixture[str]

    def __post_init__(self) -> None:
        self.published, self.output = self.directory / "published", self.directory / "out"
        self.record = record_name(self.key.text)
        self.signature = f"{self.record}{signature.SUFFIX}"
        self.archive = archive_name(self.key.text)

    def run(self, command: str, *words: str, code: int = 0) -> tuple[str, str]:
        """Run qola, check how it ends, and return what it says; words are options or sources."""
        given = [word if word.startswith("-") else f"--prebuilt={word}" for word in words]
        output = () if command == "publish" else ("-o", "out")
        self.capsys.readouterr()
        given = [command, "-m", "left.toml", *output, *given]
        ended = main(given, self.environ, directory=self.directory)
        out, err = self.capsys.readouterr()
        assert ended == code, err
        return out, err

    def fetch(self, *words: str, code: int = 0) -> str:
        """Run qola fetch."""
        return self.run("fetch", *words, code=code)[1]

    def build(self, *words: str, code: int = 0) -> str:
        """Run qola build."""
        return self.run("build", *words, code=code)[1]

    def manifest(self, more: str) -> None:
        """Add to the manifest."""
        (self.directory / "left.toml").write_text(MANIFEST + more)

    def serve(self, content: dict[str, bytes] | None = None) -> Files:
        """Serve what is published, or other files."""
        if content is None:
            content = {path.name: path.read_bytes() for path in self.published.iterdir()}
        files = Files({f"/{name}": data for name, data in content.items()})
        return self.stack.enter_context(serving(files))

    def put(self, bundle: str, *, key: Key | None = None, overwrite: bool = False) -> bool:
        """Publish a bundle; returns whether anything was written."""
        archive = self.directory / "archive.tar.gz"
        packed = pack_bundle(self.directory / bundle, archive)
        secret = signature.read_secret_key(self.directory / "k.key", "")
        to = DirectorySource(self.published)
        return publish(key or self.key, archive, packed, to, secret, overwrite=overwrite).written


@contextmanager
def a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[User]:
    """A user, and a bundle of what they want, signed by key k."""
    # The library's own pauses, which other tests measure.
    monkeypatch.setattr(fetch, "Transport", partial(Transport, retry=RETRY))
    monkeypatch.setattr(identity, "ruleset_digest", lambda root: "0" * 64)
    (tmp_path / "left.toml").write_text(MANIFEST)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    # Without a bundle a build gets as far as looking for Bazel.
    environ |= {"PATH": "", "QOLA_BAZEL": "no-such-bazel"}
    request = BuildRequest(manifest_path=tmp_path / "left.toml")
    key = fetch.key_of(resolve_build(request, environ), Forms(), (), environ)
    signature.write_pair(tmp_path / "k", "")
    write_bundle(tmp_path / "bundle")
    write_bundle(tmp_path / "other", b"other")
    with ExitStack() as stack:
        someone = User(tmp_path, key, stack, environ, capsys)
        someone.put("bundle")
        yield someone


def repository(user: User, manifest: str, look_up: str) -> str:
    """Return the BUILD file of a manifest's repository, with what is published as its source."""
    file = user.directory / "left.toml"
    file.write_text(manifest)
    output = user.directory / look_up
    output.mkdir(exist_ok=True)
    rocm = user.directory / "rocm.json"
    rocm.write_text('{"origin": "pinned"}')
    request = BuildRequest(file, BuildSpec(("gfx950",)))
    source = resolve_build(request, user.environ).aiter.source
    pin = json.dumps({"kind": "wheel", **asdict(source)})
    options = {"manifest": file, "display": file.name, "repository": "qola_left", "aiter": pin}
    options |= {"rocm": rocm, "folder": user.directory, "place": "qola.prebuilt"}
    options |= {"url": user.published, "look-up": look_up, "output": output}
    assert repository_rule.main([f"--{name}={value}" for name, value in options.items()]) == 0
    return (output / "BUILD.bazel").read_text()
