"""qola fetch and qola build with prebuilt bundles, from directories and real HTTP servers."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from qola.build.forms import Forms
from qola.build.setup import BuildRequest, choose_all
from qola.cli import main
from qola.errors import PrebuiltError, QolaError
from qola.manifest.load import load
from qola.prebuilt import fetch, signature
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.http import HttpClient, HttpSettings
from qola.prebuilt.key import Key
from qola.prebuilt.options import PrebuiltOptions, choose_sources
from qola.prebuilt.publish import check_same, publish
from qola.prebuilt.record import archive_name, checksum_name, record_name
from qola.prebuilt.sources import DirectorySource, HttpSource, parse_source
from tests.python.prebuilt.http_files import Fault, Files, serving

MANIFEST = """\
[qola]
namespace = "left"
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
"""
COMMIT = "c" * 40
# Of a size that does not shrink: it arrives in several parts.
LIBRARY = b"\x7fELF" + random.Random(7).randbytes(20_000)


def write_bundle(directory: Path, library: bytes = LIBRARY) -> Path:
    """A directory with what a bundle has at least."""
    record = {
        "schema": 1,
        "name": "left",
        "namespace": "left",
        "archs": ["gfx950"],
        "modules": [{"name": "libmha_fwd", "library": "lib/left_libmha_fwd.so"}],
    }
    for name in ("lib", "include"):
        (directory / name).mkdir(parents=True)
    (directory / "lib/left_libmha_fwd.so").write_bytes(library)
    (directory / "include/qola_config.h").write_text("#pragma once\n")
    (directory / "manifest.json").write_text(json.dumps(record))
    return directory


@dataclass
class User:
    """Somebody with a manifest, a cache, and servers to ask.

    Attributes:
        directory: where they are.
        published: a directory with the prebuilt bundle of the manifest.
        key: the bundle's key.
        stack: ends the servers.
        environ: the environment.
    """

    directory: Path
    published: Path
    key: Key
    stack: ExitStack
    environ: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str) -> int:
        """Run qola."""
        return main(words, self.environ, directory=self.directory)

    def fetch(self, *words: str) -> int:
        """Run qola fetch."""
        return self.run("fetch", "-m", "left.toml", "-o", "out", *words)

    def serve(self, etag: str = '"one"') -> Files:
        """Serve what is published."""
        content = {f"/{path.name}": path.read_bytes() for path in self.published.iterdir()}
        files = Files(content, dict.fromkeys(content, etag))
        return self.stack.enter_context(serving(files))

    @property
    def output(self) -> Path:
        """Where things are installed."""
        return self.directory / "out"

    def archive(self, directory: str = "") -> str:
        """Path of the archive on a server."""
        return f"{directory}/{archive_name(self.key.text)}"

    def record(self) -> str:
        """Path of the record on a server."""
        return f"/{record_name(self.key.text)}"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """A user, and a bundle of what they want, signed by key k."""
    # The library's own pauses, which other tests measure.
    monkeypatch.setattr(fetch, "HttpSettings", _quick)
    (tmp_path / "left.toml").write_text(MANIFEST)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", "HOME": str(tmp_path)}
    request = BuildRequest(manifest_path=tmp_path / "left.toml", archs=(), groups=())
    chosen = choose_all(request, environ, print)
    key = fetch.key_of(chosen, request, Forms(), (), environ, print)
    signature.write_pair(tmp_path / "k", "")
    with ExitStack() as stack:
        someone = User(tmp_path, tmp_path / "published", key, stack, environ)
        put(someone, write_bundle(tmp_path / "bundle"))
        yield someone


def _quick(redirects: tuple[str, ...], token: str, proxies: dict[str, str]) -> HttpSettings:
    return HttpSettings(redirects, token, proxies, backoff=0.01, longest_wait=1, read_timeout=2.0)


def put(user: User, bundle: Path, *, key: Key | None = None, overwrite: bool = False) -> bool:
    """Publish a bundle; returns whether anything was written."""
    archive = user.directory / "archive.tar.gz"
    packed = pack_bundle(bundle, archive)
    secret = signature.read_secret_key(user.directory / "k.key", "")
    target = DirectorySource(user.published)
    return publish(key or user.key, archive, packed, target, secret, overwrite=overwrite).written


def public_key(user: User) -> str:
    """The public key as a manifest has it."""
    return (user.directory / "k.pub").read_text().splitlines()[1]


def test_from_a_directory(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a bundle that is there and not found; a record that says nothing of its origin."""
    assert user.fetch("--prebuilt", "published", "--public-key", "k.pub") == 0
    said = capsys.readouterr()
    assert f"prebuilt {user.key.text} from {user.published}" in said.err
    assert "only its digest" not in said.err
    assert "left_libmha_fwd: fetched, " in said.out
    assert (user.output / "lib/left_libmha_fwd.so").read_bytes()[:4] == b"\x7fELF"
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["prebuilt"]["key"] == user.key.text
    assert record["summary"] == {"total": 1, "success": 1, "failed": 0}
    assert record["modules"][0]["so_path"] == str(user.output / "lib/left_libmha_fwd.so")
    assert record["archs"] == ["gfx950"]
    assert sorted(path.name for path in user.output.iterdir()) == [
        "include",
        "lib",
        "manifest.json",
    ]


def test_an_archive_of_an_earlier_build(user: User) -> None:
    """Prevents: an archive of other kernels than the libraries have; --static passed over."""
    earlier = user.output / "lib/libqola_left.a"
    of_cmake = user.output / "lib/cmake/qola/qola-static.cmake"
    of_cmake.parent.mkdir(parents=True)
    for file in (earlier, of_cmake):
        file.write_text("of an earlier build")
    assert user.fetch("--prebuilt", "published", "--static") == 9
    assert earlier.exists()
    assert user.fetch("--prebuilt", "published") == 0
    assert not earlier.exists()
    assert not of_cmake.exists(), "CMake offers an archive that is not there"


def test_from_a_server_and_then_from_the_cache(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a bundle downloaded twice; an offline machine that asks servers."""
    server = user.serve()
    assert user.fetch("--prebuilt", server.url) == 0
    said = capsys.readouterr().err
    assert f"from {server.url}; only its digest was checked: no public key is configured" in said
    asked = len(server.requests)
    shutil.rmtree(user.output)
    assert user.fetch("--prebuilt", server.url, "--offline") == 0
    assert "from the cache of downloads" in capsys.readouterr().err
    assert len(server.requests) == asked
    # With a key it is not enough that nobody signed what is there.
    assert user.fetch("--prebuilt", server.url, "--public-key", "k.pub") == 0
    assert len(server.requests) > asked
    # Signed now, it needs nobody.
    assert user.fetch("--prebuilt", server.url, "--public-key", "k.pub", "--offline") == 0


def test_offline_without_a_download(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: requests of a machine that shall make none; directories taken for servers."""
    server = user.serve()
    assert user.fetch("--prebuilt", server.url, "--offline") == 9
    assert not server.requests
    assert f"{server.url}: not asked: offline" in capsys.readouterr().err
    assert user.fetch("--prebuilt", server.url, "--prebuilt", "published", "--offline") == 0


def test_nobody_has_it(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a miss without key and places that were asked; an output directory of it."""
    empty = user.stack.enter_context(serving(Files()))
    assert user.fetch("--prebuilt", empty.url, "--prebuilt", "nowhere") == 9
    said = capsys.readouterr().err
    assert user.key.text in said
    assert f"{empty.url}: not there" in said
    assert "nowhere: no such directory" in said
    assert not user.output.exists()
    assert user.fetch() == 9
    assert "no source to ask" in capsys.readouterr().err


def test_mirrors(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a fetch that fails with the first mirror; one that does not say which is down."""
    empty, server = user.stack.enter_context(serving(Files())), user.serve()
    gone = "http://127.0.0.1:9"
    words = [w for url in (gone, empty.url, server.url) for w in ("--prebuilt", url)]
    assert user.fetch(*words) == 0
    said = capsys.readouterr().err
    assert f"{gone}: " in said
    assert "refused" in said
    assert empty.paths() == [user.record()]
    assert f"from {server.url}" in said


def test_cut_off_here_and_whole_there(user: User) -> None:
    """Prevents: the beginning of one mirror's file gone on with where the file is another."""
    broken, server = user.serve('"broken"'), user.serve('"whole"')
    broken.faults[user.archive("")] = Fault(cut=2000, times=99)
    broken.content[user.archive("")] = bytes(len(server.content[user.archive("")]))
    assert user.fetch("--prebuilt", broken.url, "--prebuilt", server.url) == 0
    assert (user.output / "lib/left_libmha_fwd.so").read_bytes() == LIBRARY
    last = [request for request in server.requests if request.path == user.archive("")]
    assert last[0].headers["If-Range"] == '"broken"'


def test_wrong_bytes(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a damaged bundle installed, or passed over in silence for a mirror or a build."""
    server, good = user.serve(), user.serve()
    data = bytearray(server.content[user.archive("")])
    right = hashlib.sha256(data).hexdigest()
    data[100] ^= 1
    server.content[user.archive("")] = bytes(data)
    sources = ("--prebuilt", server.url, "--prebuilt", good.url)
    for _ in range(2):
        assert user.fetch(*sources) == 10
        said = capsys.readouterr().err
        assert right in said
        assert hashlib.sha256(data).hexdigest() in said
        assert f"{server.url}{user.archive('')}" in said
        assert not user.output.exists()
    assert not good.requests
    # Nothing of it is left that a later fetch would take.
    assert user.fetch("--prebuilt", good.url) == 0


def test_wrong_checksum_file(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a checksum for other programs that says something else than the record."""
    server = user.serve()
    server.content[f"/{checksum_name(user.key.text)}"] = b"0" * 64 + b"  x\n"
    assert user.fetch("--prebuilt", server.url) == 10
    said = capsys.readouterr().err
    assert "0" * 64 in said
    assert f"{server.url}{user.archive('')}.sha256" in said


def test_a_larger_file_than_recorded(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a server that fills the disk."""
    server = user.serve()
    server.content[user.archive("")] += b"more"
    assert user.fetch("--prebuilt", server.url) == 10
    assert "bytes" in capsys.readouterr().err


def test_unsigned_and_wrongly_signed(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a bundle that nobody vouches for, where somebody has to."""
    server = user.serve()
    signed = f"{user.record()}.minisig"
    right = server.content.pop(signed)
    words = ("--prebuilt", server.url, "--public-key", public_key(user))
    assert user.fetch(*words) == 10
    assert "no signature" in capsys.readouterr().err
    server.content[signed] = right
    server.content[user.record()] += b" "
    assert user.fetch(*words) == 10
    assert "not of this key and record" in capsys.readouterr().err
    assert not user.output.exists()
    assert user.archive("") not in server.paths(), "fetched before it was known who made it"


def test_the_record_of_another_bundle(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a signed bundle of another kind under this one's name."""
    other = Key(user.key.name, user.key.rocm, user.key.archs, {**user.key.inputs, "archs": ["x"]})
    put(user, write_bundle(user.directory / "other"), key=other)
    record = (user.published / record_name(other.text)).read_bytes()
    (user.published / record_name(user.key.text)).write_bytes(record)
    assert user.fetch("--prebuilt", "published") == 10
    said = capsys.readouterr().err
    assert user.key.digest in said
    assert other.digest in said
    assert "archs differs" in said


def test_a_damaged_copy_in_the_cache(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a bad disk that makes every fetch fail, or is believed."""
    server = user.serve()
    assert user.fetch("--prebuilt", server.url) == 0
    (copy,) = (user.directory / "cache/qola/prebuilt").glob(f"*/{user.archive('')[1:]}")
    copy.write_bytes(b"damaged")
    capsys.readouterr()
    assert user.fetch("--prebuilt", server.url, "--offline") == 10
    assert hashlib.sha256(b"damaged").hexdigest() in capsys.readouterr().err
    assert user.fetch("--prebuilt", server.url) == 0
    assert "the copy in the cache is not used" in capsys.readouterr().err


def test_an_archive_that_lacks_a_library(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: an output directory without what the manifest asks for."""
    bundle = write_bundle(user.directory / "other")
    (bundle / "lib/left_libmha_fwd.so").unlink()
    put(user, bundle, overwrite=True)
    assert user.fetch("--prebuilt", "published") == 10
    assert "no library of libmha_fwd" in capsys.readouterr().err
    assert not user.output.exists()


def test_redirects(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: files of a host that nobody chose."""
    other = user.serve()
    server = user.stack.enter_context(serving(Files()))
    for path in other.content:
        place = f"http://localhost:{other.port}{path}"
        server.faults[path] = Fault(status=302, headers={"Location": place}, times=99)
    assert user.fetch("--prebuilt", server.url) == 10
    assert "--allow-redirect localhost" in capsys.readouterr().err
    assert user.fetch("--prebuilt", server.url, "--allow-redirect", "localhost") == 0


def test_earlier_files_stay_when_it_fails(user: User) -> None:
    """Prevents: an output directory half of one bundle and half of another."""
    assert user.fetch("--prebuilt", "published") == 0
    before = {p: p.read_bytes() for p in user.output.rglob("*") if p.is_file()}
    put(user, write_bundle(user.directory / "other", b"other"), overwrite=True)
    archive = user.published / user.archive("")[1:]
    archive.write_bytes(archive.read_bytes()[:-50])
    shutil.rmtree(user.directory / "cache")
    assert user.fetch("--prebuilt", "published") == 10
    assert {p: p.read_bytes() for p in user.output.rglob("*") if p.is_file()} == before


def test_published_twice(user: User) -> None:
    """Prevents: the same bundle uploaded again; another one put over it by mistake."""
    assert not put(user, user.directory / "bundle"), "the same was written again"
    other = write_bundle(user.directory / "other", b"other")
    with pytest.raises(PrebuiltError, match="the same inputs give the same bytes"):
        put(user, other)
    assert put(user, other, overwrite=True)
    assert not put(user, other)


def test_an_unsigned_bundle_is_signed_later(user: User) -> None:
    """Prevents: a bundle that stays unsigned, because it is there already."""
    (user.published / f"{user.record()[1:]}.minisig").unlink()
    assert put(user, user.directory / "bundle")
    assert user.fetch("--prebuilt", "published", "--public-key", "k.pub") == 0


def test_published_to_a_server(user: User) -> None:
    """Prevents: a record that is there before its archive; uploads that nobody can fetch."""
    server = user.stack.enter_context(serving(Files()))
    archive = user.directory / "archive.tar.gz"
    packed = pack_bundle(user.directory / "bundle", archive)
    secret = signature.read_secret_key(user.directory / "k.key", "")
    client = HttpClient(_quick((), "secret", {}), print)
    target = HttpSource(f"{server.url}/team/", client)
    assert publish(user.key, archive, packed, target, secret, overwrite=False).written
    puts = [request.path for request in server.requests if request.method == "PUT"]
    record = f"/team{user.record()}"
    archived = user.archive("/team")
    assert puts == [archived, f"{archived}.sha256", f"{record}.minisig", record]
    assert user.fetch("--prebuilt", f"{server.url}/team", "--public-key", "k.pub") == 0
    server.faults[archived] = Fault(status=403, times=1)
    with pytest.raises(QolaError, match="PUT answers 403"):
        publish(user.key, archive, packed, target, secret, overwrite=True)


def test_a_server_that_does_not_answer_is_told_before_the_build(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: hours of building for a server that is down, or has another bundle."""
    user.environ["QOLA_BAZEL"] = "no-such-bazel"
    words = ("publish", "-m", "left.toml", "--to")
    assert user.run(*words, "http://127.0.0.1:9") == 1
    assert "is not published" in capsys.readouterr().err
    (user.published / user.record()[1:]).write_bytes(b"{}")
    assert user.run(*words, "published") == 10
    assert user.run(*words, "published", "--overwrite") == 5, "it did not get as far as Bazel"


def test_build_takes_it_first(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: hours of compiling for a bundle that is there; a Bazel that is needed for it."""
    assert user.run("build", "-m", "left.toml", "-o", "out", "--prebuilt", "published") == 0
    said = capsys.readouterr()
    assert f"prebuilt {user.key.text}" in said.err
    assert "Build complete: 1/1 succeeded, 0 failed." in said.out


@pytest.mark.parametrize("how", ["manifest", "QOLA_PREBUILT_URL", "NVTE_AITER_PREBUILT_BASE_URL"])
def test_by_default(user: User, how: str) -> None:
    """Prevents: sources in manifest or environment that nobody asks."""
    server = user.serve()
    if how == "manifest":
        table = f'[prebuilt]\nurls = ["{server.url}"]\npublic_key = "{public_key(user)}"\n'
        (user.directory / "left.toml").write_text(MANIFEST + table)
    else:
        user.environ[how] = server.url
    assert user.run("build", "-m", "left.toml", "-o", "out") == 0
    assert (f"{user.record()}.minisig" in server.paths()) == (how == "manifest")


@pytest.mark.parametrize(
    "how", ["--prebuilt", "QOLA_PREBUILT_URL", "manifest", "NVTE_AITER_PREBUILT_BASE_URL"]
)
def test_who_gets_the_token(user: User, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a token told to servers that somebody else's manifest names."""
    server = user.serve()
    user.environ["QOLA_PREBUILT_TOKEN"] = "secret"
    words = []
    if how == "manifest":
        table = f'[prebuilt]\nurls = ["{server.url}"]\n'
        (user.directory / "left.toml").write_text(MANIFEST + table)
    elif how == "--prebuilt":
        words = [how, server.url]
    else:
        user.environ[how] = server.url
    assert user.fetch(*words) == 0
    told = ["Authorization" in request.headers for request in server.requests]
    said = capsys.readouterr().err
    trusted = how in ("--prebuilt", "QOLA_PREBUILT_URL")
    assert told == [trusted] * len(told)
    assert said.count(f"{server.url}: the token is not sent there: only --prebuilt") == 1 - trusted
    assert "secret" not in said


def test_publish_sends_the_token(user: User) -> None:
    """Prevents: bundles that cannot be published where one has to say who one is."""
    server = user.serve()
    server.content[user.record()] = b"{}"
    user.environ["QOLA_PREBUILT_TOKEN"] = "secret"
    assert user.run("publish", "-m", "left.toml", "--to", server.url) == 10
    assert [r.headers.get("Authorization") for r in server.requests] == ["Bearer secret"]


def test_build_does_not_hide_what_is_wrong(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a build in silence where somebody has changed a bundle."""
    archive = user.published / user.archive("")[1:]
    archive.write_bytes(archive.read_bytes()[:-50])
    assert user.run("build", "-m", "left.toml", "-o", "out", "--prebuilt", "published") == 10
    assert "wrong digest" in capsys.readouterr().err


def test_a_miss_builds(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a build that ends with a miss; one that does not say what it missed."""
    user.environ["QOLA_BAZEL"] = "no-such-bazel"
    (user.directory / "empty").mkdir()
    words = ("build", "-m", "left.toml", "-o", "out")
    # It gets as far as looking for Bazel.
    assert user.run(*words, "--prebuilt", "empty") == 5
    said = capsys.readouterr().err
    assert f"no prebuilt {user.key.text}, building" in said
    assert "empty: not there" in said
    assert user.run(*words, "--prebuilt", "published", "--no-prebuilt") == 5
    assert "prebuilt" not in capsys.readouterr().err


def test_keys_printed(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a miss that nobody can explain; fetch and publish that mean different bundles."""
    for command in ("fetch", "publish"):
        assert user.run(command, "-m", "left.toml", "--print-key") == 0
        assert capsys.readouterr().out == f"{user.key.text}\n"
    assert user.run("fetch", "-m", "left.toml", "--explain", "--arch", "gfx942") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"]["archs"] == ["gfx942"]
    assert found["key"] != user.key.text
    with pytest.raises(SystemExit) as caught:
        user.run("fetch", "-m", "left.toml")
    assert caught.value.code == 2


def test_modules_that_python_imports(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a module for one Python in the hands of another."""
    text = MANIFEST + '[[modules]]\nname = "module_aiter_enum"\nmode = "pybind"\n'
    (user.directory / "left.toml").write_text(text)
    assert user.fetch("--prebuilt", "published") == 9
    assert "module_aiter_enum" in capsys.readouterr().err
    user.environ["QOLA_BAZEL"] = "no-such-bazel"
    assert user.run("build", "-m", "left.toml", "-o", "out", "--prebuilt", "published") == 5
    assert "no prebuilt bundle has module_aiter_enum" in capsys.readouterr().err


def test_who_names_the_sources(tmp_path: Path) -> None:
    """Prevents: a mirror of the command line asked after that of the manifest, or beside it."""
    (tmp_path / "m.toml").write_text(MANIFEST + '[prebuilt]\nurls = ["http://m", "dir"]\n')
    (tmp_path / "n.toml").write_text(MANIFEST)
    with_table, without = load(tmp_path / "m.toml"), load(tmp_path / "n.toml")
    environ = {"QOLA_PREBUILT_URL": "http://a  'b c'", "NVTE_AITER_PREBUILT_BASE_URL": "http://t"}
    folder = Path("/folder")

    def names(options: PrebuiltOptions, **changed: str) -> list[str]:
        manifest = without if "QOLA_PREBUILT_URL" in changed else with_table
        found = choose_sources(options, manifest, {**environ, **changed}, folder)
        return [source.text for source in found]

    assert names(PrebuiltOptions(urls=("http://o",))) == ["http://o"]
    assert names(PrebuiltOptions()) == ["http://m", "dir"]
    assert names(PrebuiltOptions(), QOLA_PREBUILT_URL="http://a 'b c'") == ["http://a", "b c"]
    assert names(PrebuiltOptions(), QOLA_PREBUILT_URL="") == ["http://t"]
    assert names(PrebuiltOptions(urls=("http://o",), enabled=False)) == []


def test_sources_that_no_shell_would_read(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a traceback for an apostrophe in the name of a directory."""
    user.environ["QOLA_PREBUILT_URL"] = "/srv/it's"
    for command in ("fetch", "build"):
        assert user.run(command, "-m", "left.toml", "-o", "out") == 1
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert "QOLA_PREBUILT_URL" in said
        assert "/srv/it's" in said
        assert "fix       QOLA_PREBUILT_URL=" in said


@pytest.mark.parametrize("text", ["ftp://x/y", "http://", "http://u:secret@x/", "https://x/?a=1"])
def test_no_source(text: str) -> None:
    """Prevents: a password in messages; URLs that mean something else with a name behind them."""
    client = HttpClient(HttpSettings(), print)
    with pytest.raises(QolaError) as caught:
        parse_source(text, Path("/"), client, "--prebuilt")
    assert "secret" not in str(caught.value)


def te_archive(name: str, *files: str) -> bytes:
    """What TransformerEngine's upload script packs: one directory."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"\x7fELF"))
    return data.getvalue()


def te_server(user: User, name: str, *files: str) -> Files:
    """A server with one archive in TransformerEngine's layout."""
    data = te_archive(name, *files)
    digest = hashlib.sha256(data).hexdigest().encode()
    content = {f"/{name}.tar.gz": data, f"/{name}.tar.gz.sha256": digest + b"\n"}
    server = user.stack.enter_context(serving(Files(content)))
    user.environ["NVTE_AITER_PREBUILT_BASE_URL"] = server.url
    return server


@pytest.mark.parametrize("version", ["7", "7.2"])
def test_transformer_engine_s_layout(
    user: User, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: bundles that TransformerEngine's CI made of no use; their gaps not told."""
    name = f"rocm-{version}_aiter-{COMMIT}"
    files = ("lib/left_libmha_fwd.so", "include/qola_config.h")
    server = te_server(user, name, *files)
    assert user.fetch("--aiter-commit", COMMIT) == 0
    said = capsys.readouterr().err
    assert "warning" in said
    assert "does not cover archs, patches, edits" in said
    # qola's own key goes first.
    assert server.paths()[0].endswith(".manifest.json")
    assert all((user.output / file).is_file() for file in files)
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["prebuilt"]["layout"] == "transformer-engine"


def test_transformer_engine_s_layout_for_a_checkout(user: User) -> None:
    """Prevents: TransformerEngine's own tree of AITER, a submodule, without its prebuilts."""
    tree = user.directory / "aiter"
    (tree / "aiter/jit").mkdir(parents=True)
    (tree / "aiter/jit/optCompilerConfig.json").write_text("{}")
    words = ("--aiter-root", str(tree))
    git = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    te_server(user, f"rocm-7_aiter-{head.stdout.strip()}", "lib/left_libmha_fwd.so")
    assert user.fetch(*words) == 0
    # A directory of somebody else's repository is no checkout of AITER.
    (tree / ".git").rename(user.directory / ".git")
    assert user.fetch(*words) == 9


def test_transformer_engine_s_layout_is_not_trusted(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: another's namespace, an unsigned archive or a damaged one installed."""
    name = f"rocm-7_aiter-{COMMIT}"
    server = te_server(user, name, "lib/te_libmha_fwd.so")
    assert user.fetch("--aiter-commit", COMMIT) == 9
    assert "passed over" in capsys.readouterr().err
    server.content[f"/{name}.tar.gz.sha256"] = b"0" * 64
    assert user.fetch("--aiter-commit", COMMIT) == 10
    said = capsys.readouterr().err
    assert "0" * 64 in said
    assert hashlib.sha256(server.content[f"/{name}.tar.gz"]).hexdigest() in said
    asked = len(server.requests)
    assert user.fetch("--aiter-commit", COMMIT, "--public-key", "k.pub") == 9
    assert "it is not signed" in capsys.readouterr().err
    assert user.fetch("--aiter-commit", COMMIT, "--lazy") == 9
    assert "no lazy libraries" in capsys.readouterr().err
    assert user.fetch("--aiter-commit", COMMIT, "--static") == 9
    assert "no archives" in capsys.readouterr().err
    # The pinned wheel has no commit.
    assert user.fetch() == 9
    assert "no full commit" in capsys.readouterr().err
    assert all(path.endswith(".manifest.json") for path in server.paths()[asked:])
    del server.content[f"/{name}.tar.gz.sha256"]
    assert user.fetch("--aiter-commit", COMMIT) == 9
    assert "no .sha256 there" in capsys.readouterr().err


def test_offline_a_signed_one_beside_an_unsigned_copy(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a copy of no use that hides the directory with the right bundle."""
    unsigned = shutil.copytree(user.published, user.directory / "unsigned")
    (unsigned / f"{record_name(user.key.text)}{signature.SUFFIX}").unlink()
    assert user.fetch("--prebuilt", "unsigned") == 0
    signed = ("--public-key", "k.pub", "--offline")
    assert user.fetch("--prebuilt", "unsigned", *signed) == 10
    assert user.fetch(*signed) == 10, "a copy that must not be used is no miss"
    capsys.readouterr()
    assert user.fetch("--prebuilt", "published", *signed) == 0
    assert "the copy in the cache is not used" in capsys.readouterr().err


@pytest.mark.parametrize("harm", ["gone", "another"])
def test_publishing_again_heals(user: User, harm: str) -> None:
    """Prevents: a broken publication that "there already" keeps broken for ever."""
    archive = user.published / archive_name(user.key.text)
    if harm == "gone":
        archive.unlink()
    else:
        archive.write_bytes(archive.read_bytes()[::-1])
    assert user.fetch("--prebuilt", "published") != 0
    assert put(user, user.directory / "bundle")
    assert user.fetch("--prebuilt", "published") == 0
    assert not put(user, user.directory / "bundle")


def test_inputs_that_change_while_building(user: User) -> None:
    """Prevents: new content signed under the key of what was there when the build began."""
    check_same(user.key, user.key)
    other = replace(user.key, inputs={**user.key.inputs, "archs": ["gfx942"]})
    with pytest.raises(QolaError, match="archs changed while it was built"):
        check_same(user.key, other)


def test_an_argument_that_no_key_has(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a bundle of other settings than those of a user's own configuration."""
    own = "--bazel-arg=--config=mine"
    assert user.fetch("--prebuilt", "published", own) == 9
    assert "--config=mine, whose meaning lies elsewhere" in capsys.readouterr().err
    assert user.run("build", "-m", "left.toml", "-o", "out", "--prebuilt", "published", own) != 0
    assert "no prebuilt bundle is looked for: --config=mine" in capsys.readouterr().err
    apart = ("--bazel-arg=--repo_env", "--bazel-arg=QOLA_ROCM=pinned", "--print-key")
    assert user.fetch(*apart) == 0
    assert capsys.readouterr().out.strip() == user.key.text


def test_transformer_engine_s_layout_is_kept(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: gigabytes downloaded for each build; an offline machine without what it has."""
    name = f"rocm-7_aiter-{COMMIT}"
    archive, checksum = f"/{name}.tar.gz", f"/{name}.tar.gz.sha256"
    server = te_server(user, name, "lib/left_libmha_fwd.so")
    words = ("--aiter-commit", COMMIT)
    assert user.fetch(*words, "--offline") == 9
    assert f"{server.url}{archive}: not asked: offline" in capsys.readouterr().err
    assert not server.requests
    assert user.fetch(*words) == 0
    assert user.fetch(*words) == 0
    assert server.paths().count(checksum) == 2
    assert server.paths().count(archive) == 1
    asked = len(server.requests)
    shutil.rmtree(user.output)
    assert user.fetch(*words, "--offline") == 0
    assert "does not cover archs" in capsys.readouterr().err
    assert len(server.requests) == asked
    assert (user.output / "lib/left_libmha_fwd.so").is_file()
    # Another archive under the same name.
    data = te_archive(name, "lib/left_libmha_fwd.so", "include/qola_config.h")
    server.content[archive] = data
    server.content[checksum] = hashlib.sha256(data).hexdigest().encode()
    assert user.fetch(*words) == 0
    assert server.paths().count(archive) == 2
    assert (user.output / "include/qola_config.h").is_file()
    (copy,) = (user.directory / "cache/qola/prebuilt").glob(f"*{archive}")
    copy.write_bytes(b"damaged")
    assert user.fetch(*words, "--offline") == 10
    assert hashlib.sha256(b"damaged").hexdigest() in capsys.readouterr().err
    assert user.fetch(*words) == 0
    assert server.paths().count(archive) == 3
