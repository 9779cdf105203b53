"""qola fetch and qola build with prebuilt bundles, from directories and real HTTP servers."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from qola.build.forms import Forms
from qola.cli import main
from qola.errors import PrebuiltError, QolaError
from qola.manifest.load import loads
from qola.prebuilt import signature
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.http import HttpSource, Transport
from qola.prebuilt.options import NamedSource, PrebuiltOptions, choose_sources, parse_source
from qola.prebuilt.publish import check_same, publish
from qola.prebuilt.record import archive_name, record_name
from tests.prebuilt.users import LIBRARY, LIBRARY_FILE, MANIFEST, RETRY, SIGNED, User
from tests.servers.http_files import Fault, Files
from tests.support.folders import git, read, write

COMMIT = "--aiter-commit=" + "c" * 40
TE_NAME = "rocm-7_aiter-" + "c" * 40


@pytest.mark.parametrize(
    ("command", "summary"),
    [
        ("fetch", "left_libmha_fwd: fetched, "),
        ("fetch", "/published.\n"),
        ("build", "Build complete: 1/1 succeeded, 0 failed."),
    ],
)
def test_from_a_directory(user: User, command: str, summary: str) -> None:
    """Prevents: a bundle that is there and not found, or compiled; a record without its origin."""
    out, err = user.run(command, "published", SIGNED)
    assert f"prebuilt {user.key.text} from {user.published}" in err
    assert "only its digest" not in err
    assert summary in out
    assert (user.output / LIBRARY_FILE).read_bytes() == LIBRARY
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["prebuilt"]["key"] == user.key.text
    assert record["summary"] == {"total": 1, "success": 1, "failed": 0}
    assert record["modules"][0]["so_path"] == str(user.output / LIBRARY_FILE)
    assert record["archs"] == ["gfx950"]
    assert list(read(user.output)) == ["include/qola_config.h", LIBRARY_FILE, "manifest.json"]


def test_an_archive_of_an_earlier_build(user: User) -> None:
    """Prevents: an archive of other kernels than the libraries have; --static passed over."""
    earlier = dict.fromkeys(("lib/libqola_left.a", "lib/cmake/qola/qola-static.cmake"), "1")
    write(user.output, earlier)
    user.fetch("published", "--static", code=9)
    assert read(user.output).keys() == earlier.keys()
    user.fetch("published")
    assert not read(user.output).keys() & earlier.keys()


def test_from_a_server_and_then_from_the_cache(user: User) -> None:
    """Prevents: a bundle downloaded twice; an offline machine that asks servers."""
    server = user.serve()
    said = user.fetch(server.url)
    assert f"from {server.url}; only its digest was checked: no public key is configured" in said
    asked = len(server.requests)
    shutil.rmtree(user.output)
    assert "from the cache of downloads" in user.fetch(server.url, "--offline")
    assert len(server.requests) == asked
    # With a key it is not enough that nobody signed what is there.
    user.fetch(server.url, SIGNED)
    assert len(server.requests) > asked
    # Signed now, it needs nobody.
    user.fetch(server.url, SIGNED, "--offline")


def test_a_source_that_is_gone(user: User) -> None:
    """Prevents: success that reads as if the source had answered, or as if something were built."""
    server = user.serve()
    user.fetch(server.url)
    server.content.clear()
    out, _ = user.run("fetch", server.url)
    cache = user.directory / "cache/qola/prebuilt" / user.key.digest
    last = f"Fetched from the cache of downloads ({cache}), no source was asked.\n"
    assert out.endswith(last)
    assert "Build complete" not in out


def test_offline_without_a_download(user: User) -> None:
    """Prevents: requests of a machine that shall make none; directories taken for servers."""
    server = user.serve()
    said = user.fetch(server.url, "--offline", code=9)
    assert f"{server.url}: not asked: offline" in said
    user.fetch(server.url, "published", "--offline")
    assert not server.requests


def test_nobody_has_it(user: User) -> None:
    """Prevents: a miss without key and places that were asked; an output directory of it."""
    empty = user.serve({})
    assert f"{empty.url}: not there" in user.fetch(empty.url, code=9)
    # Somebody who does not answer may have it.
    said = user.fetch(empty.url, "nowhere", code=12)
    for words in (user.key.text, f"{empty.url}: not there", "nowhere: no such directory"):
        assert words in said
    assert not user.output.exists()
    assert "no source to ask" in user.fetch(code=9)


def test_mirrors(user: User) -> None:
    """Prevents: a fetch that fails with the first mirror, or takes part of its file."""
    broken, empty, server = user.serve(), user.serve({}), user.serve()
    broken.content[f"/{user.archive}"] = bytes(len(server.content[f"/{user.archive}"]))
    broken.faults[f"/{user.archive}"] = Fault(cut=2000, times=99)
    gone = "http://127.0.0.1:9"
    said = user.fetch(gone, empty.url, broken.url, server.url)
    for words in (f"{gone}: ", "refused", f"{broken.url}: ", f"from {server.url}"):
        assert words in said
    assert empty.paths() == [f"/{user.record}"]
    assert (user.output / LIBRARY_FILE).read_bytes() == LIBRARY
    assert not list((user.directory / "cache").rglob("*.arrived"))


def test_wrong_bytes(user: User) -> None:
    """Prevents: a damaged bundle installed, or passed over in silence for a mirror or a build."""
    server, good = user.serve(), user.serve()
    right = server.content[f"/{user.archive}"]
    wrong = server.content[f"/{user.archive}"] = bytes([*right[:-1], right[-1] ^ 1])
    for run in (user.fetch, user.build):
        said = run(server.url, good.url, code=10)
        assert "wrong digest" in said
        assert f"{server.url}/{user.archive}" in said
        assert all(hashlib.sha256(data).hexdigest() in said for data in (right, wrong))
        assert not user.output.exists()
    assert not good.requests
    # Nothing of it is left that a later fetch would take.
    user.fetch(good.url)


def test_a_larger_file_than_recorded(user: User) -> None:
    """Prevents: a server that fills the disk."""
    server = user.serve()
    server.content[f"/{user.archive}"] += b"more"
    assert "more than" in user.fetch(server.url, code=10)


def test_unsigned_and_wrongly_signed(user: User) -> None:
    """Prevents: a bundle that nobody vouches for, where somebody has to."""
    server = user.serve()
    right = server.content.pop(f"/{user.signature}")
    assert "no signature" in user.fetch(server.url, SIGNED, code=10)
    server.content[f"/{user.signature}"] = right
    server.content[f"/{user.record}"] += b" "
    assert "not of this key and record" in user.fetch(server.url, SIGNED, code=10)
    assert not user.output.exists()
    assert f"/{user.archive}" not in server.paths(), "fetched before it was known who made it"


def test_the_record_of_another_bundle(user: User) -> None:
    """Prevents: a signed bundle of another kind under this one's name."""
    other = replace(user.key, ruleset="x")
    user.put("other", key=other)
    shutil.copy(user.published / record_name(other.text), user.published / user.record)
    said = user.fetch("published", code=10)
    for words in (user.record, user.key.digest, other.digest, "qola.ruleset differs"):
        assert words in said


def test_a_damaged_copy_in_the_cache(user: User) -> None:
    """Prevents: a bad disk that makes every fetch fail, or is believed."""
    server = user.serve()
    user.fetch(server.url)
    (copy,) = (user.directory / "cache/qola/prebuilt").glob(f"*/{user.archive}")
    copy.write_bytes(b"damaged")
    said = user.fetch(server.url, "--offline", code=10)
    assert hashlib.sha256(b"damaged").hexdigest() in said
    assert "the copy in the cache is not used" in user.fetch(server.url)


def test_an_archive_that_lacks_a_library(user: User) -> None:
    """Prevents: an output directory without what the manifest asks for."""
    (user.directory / "other" / LIBRARY_FILE).unlink()
    user.put("other", overwrite=True)
    assert "no library of libmha_fwd" in user.fetch("published", code=10)
    assert not user.output.exists()


def test_earlier_files_stay_when_it_fails(user: User) -> None:
    """Prevents: an output directory half of one bundle and half of another."""
    user.fetch("published")
    before = read(user.output)
    user.put("other", overwrite=True)
    archive = user.published / user.archive
    archive.write_bytes(archive.read_bytes()[:-50])
    shutil.rmtree(user.directory / "cache")
    user.fetch("published", code=10)
    assert read(user.output) == before


def test_published_twice(user: User) -> None:
    """Prevents: the same bundle uploaded again; another one put over it by mistake."""
    assert not user.put("bundle"), "the same was written again"
    with pytest.raises(PrebuiltError, match="the same inputs give the same bytes"):
        user.put("other")
    assert user.put("other", overwrite=True)
    assert not user.put("other")


@pytest.mark.parametrize("harm", ["gone", "another", "unsigned"])
def test_publishing_again_heals(user: User, harm: str) -> None:
    """Prevents: a broken publication that "there already" keeps broken for ever."""
    archive = user.published / user.archive
    if harm == "another":
        archive.write_bytes(archive.read_bytes()[::-1])
    else:
        (archive if harm == "gone" else user.published / user.signature).unlink()
    user.fetch("published", SIGNED, code=9 if harm == "gone" else 10)
    assert user.put("bundle")
    user.fetch("published", SIGNED)
    assert not user.put("bundle")


def test_published_to_a_server(user: User) -> None:
    """Prevents: a record that is there before its archive; uploads that nobody can fetch."""
    server, archive = user.serve({}), user.directory / "archive.tar.gz"
    packed = pack_bundle(user.directory / "bundle", archive)
    secret = signature.read_secret_key(user.directory / "k.key", "")
    target = HttpSource(f"{server.url}/team/", Transport("secret", retry=RETRY))
    assert publish(user.key, archive, packed, target, secret, overwrite=False).written
    puts = [request.path for request in server.requests if request.method == "PUT"]
    names = (user.archive, f"{user.archive}.sha256", user.signature, user.record)
    assert puts == [f"/team/{name}" for name in names]
    user.fetch(f"{server.url}/team", SIGNED)
    server.faults[f"/team/{user.archive}"] = Fault(status=403, times=1)
    with pytest.raises(QolaError, match="PUT answers 403"):
        publish(user.key, archive, packed, target, secret, overwrite=True)


def test_where_to_publish_is_asked_before_the_build(user: User) -> None:
    """Prevents: hours of building for a server that is down, unwilling, or has another bundle."""
    user.environ["QOLA_PREBUILT_TOKEN"] = "secret"
    assert "is not published" in user.run("publish", "--to=http://127.0.0.1:9", code=12)[1]
    server = user.serve({user.record: b"{}"})
    user.run("publish", f"--to={server.url}", code=10)
    assert [r.headers.get("Authorization") for r in server.requests] == ["Bearer secret"]
    (user.published / user.record).write_bytes(b"{}")
    user.run("publish", "--to=published", code=10)
    user.run("publish", "--to=published", "--overwrite", code=5)


@pytest.mark.parametrize(
    "how", ["--prebuilt", "QOLA_PREBUILT_URL", "manifest", "NVTE_AITER_PREBUILT_BASE_URL"]
)
def test_who_is_asked_and_gets_the_token(user: User, how: str) -> None:
    """Prevents: sources that nobody asks; a token told to servers of somebody else's manifest."""
    server = user.serve()
    user.environ["QOLA_PREBUILT_TOKEN"] = "secret"
    if how == "manifest":
        public_key = (user.directory / "k.pub").read_text().splitlines()[1]
        user.manifest(f'[prebuilt]\nurls = ["{server.url}"]\npublic_key = "{public_key}"\n')
    elif how != "--prebuilt":
        user.environ[how] = server.url
    said = user.build(*([server.url] if how == "--prebuilt" else []))
    assert (f"/{user.signature}" in server.paths()) == (how == "manifest")
    trusted = how in ("--prebuilt", "QOLA_PREBUILT_URL")
    assert {"Authorization" in request.headers for request in server.requests} == {trusted}
    assert said.count(f"{server.url}: the token is not sent there: only --prebuilt") == 1 - trusted
    assert "secret" not in said


def test_a_miss_builds(user: User) -> None:
    """Prevents: a build that ends with a miss; one that does not say what it missed."""
    (user.directory / "empty").mkdir()
    said = user.build("empty", code=5)
    assert f"no prebuilt {user.key.text}, building" in said
    assert "empty: not there" in said
    assert "prebuilt" not in user.build("published", "--no-prebuilt", code=5)


def test_a_manifest_is_read_once(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a prebuilt bundle of one manifest and a build of what an editor has just saved."""
    read = Mock(wraps=loads)
    monkeypatch.setattr("qola.manifest.load.loads", read)
    user.build("nowhere", code=5)
    assert read.call_count == 1


def test_a_full_bundle_serves_where_lazy_libraries_are_asked_for(user: User) -> None:
    """Prevents: kernels compiled on every machine though all of them lie on a server, compiled."""
    said = user.build("published", "--lazy")
    assert f"prebuilt {user.key.text} from" in said
    assert "no source has lazy libraries, these have their kernels inside" in said
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["lazy"] is False
    assert record["prebuilt"]["key"] == user.key.text
    # A lazy one goes first.
    lazy = replace(user.key, forms=Forms(lazy=True).to_json())
    user.put("other", key=lazy)
    said = user.build("published", "--lazy")
    assert f"prebuilt {lazy.text} from" in said
    assert "kernels inside" not in said
    assert (user.output / LIBRARY_FILE).read_bytes() == b"other"
    assert json.loads((user.output / "manifest.json").read_text())["lazy"] is True


def test_no_bundle_of_either_kind(user: User) -> None:
    """Prevents: a miss that names one of the two keys that were looked for."""
    (user.directory / "empty").mkdir()
    said = user.fetch("empty", "--lazy", code=9)
    lazy = replace(user.key, forms=Forms(lazy=True).to_json())
    assert f"error: {lazy.text}" in said
    assert f"empty: full libraries, {user.key.text}: not there" in said
    # An archive is in no bundle without one.
    assert user.key.text not in user.fetch("published", "--static", code=9)


def test_a_wrong_lazy_bundle_is_not_passed_over(user: User) -> None:
    """Prevents: a damaged or forged bundle that goes unnoticed because another serves."""
    lazy = replace(user.key, forms=Forms(lazy=True).to_json())
    user.put("other", key=lazy)
    (user.published / archive_name(lazy.text)).write_bytes(b"forged")
    user.build("published", "--lazy", code=10)
    assert not user.output.exists()


def test_results_as_json(user: User) -> None:
    """Prevents: words around the JSON of a fetch or a miss, or another record than is installed."""
    out, said = user.run("fetch", "absent", "--json", code=12)
    error = json.loads(out)["error"]
    assert error["exit_code"] == 12
    assert error["title"] in said
    out, said = user.run("fetch", "published", "--json")
    found = json.loads(out)
    assert found == json.loads((user.output / "manifest.json").read_text())
    assert found["prebuilt"]["key"] == user.key.text
    assert f"prebuilt {user.key.text} from" in said


def test_keys_printed(user: User) -> None:
    """Prevents: a miss that nobody can explain; fetch and publish that mean different bundles."""
    for command in ("fetch", "publish"):
        assert user.run(command, "--print-key")[0] == f"{user.key.text}\n"
    found = json.loads(user.run("fetch", "--explain", "--arch=gfx942")[0])
    assert found["inputs"]["archs"] == ["gfx942"]
    assert found["key"] != user.key.text
    assert main(["fetch", "left.toml"], user.environ, directory=user.directory) == 9


def test_modules_that_python_imports(user: User) -> None:
    """Prevents: a module for one Python in the hands of another."""
    user.manifest('[[modules]]\nname = "module_aiter_enum"\nmode = "pybind"\n')
    assert "module_aiter_enum" in user.fetch("published", code=9)
    assert "no prebuilt bundle has module_aiter_enum" in user.build("published", code=5)


def test_an_argument_that_no_key_has(user: User) -> None:
    """Prevents: a bundle of other settings than those of a user's own configuration."""
    own = "--bazel-arg=--config=mine"
    words = "--config=mine, whose meaning lies elsewhere"
    assert words in user.fetch("published", own, code=9)
    assert f"no prebuilt bundle is looked for: {words}" in user.build("published", own, code=5)
    apart = ("--bazel-arg=--repo_env", "--bazel-arg=QOLA_ROCM=pinned", "--print-key")
    assert user.run("fetch", *apart)[0].strip() == user.key.text


def test_inputs_that_change_while_building(user: User) -> None:
    """Prevents: new content signed under the key of what was there when the build began."""
    check_same(user.key, user.key)
    with pytest.raises(QolaError, match="archs changed while it was built"):
        check_same(user.key, replace(user.key, archs=("gfx942",)))


@pytest.mark.parametrize(
    ("options", "environ", "table", "expected"),
    [
        (PrebuiltOptions(urls=("http://o",)), {}, True, ["http://o"]),
        (PrebuiltOptions(), {}, True, ["http://m", "dir"]),
        (PrebuiltOptions(), {}, False, ["http://a", "b c"]),
        (PrebuiltOptions(), {"QOLA_PREBUILT_URL": ""}, False, ["http://t"]),
        (PrebuiltOptions(urls=("http://o",), enabled=False), {}, True, []),
    ],
)
def test_who_names_the_sources(
    options: PrebuiltOptions, environ: dict[str, str], table: bool, expected: list[str]
) -> None:
    """Prevents: a mirror of the command line asked after that of the manifest, or beside it."""
    text = MANIFEST + '[prebuilt]\nurls = ["http://m", "dir"]\n' * table
    every = {"QOLA_PREBUILT_URL": "http://a  'b c'", "NVTE_AITER_PREBUILT_BASE_URL": "http://t"}
    manifest = loads(text, file="m.toml")
    found = choose_sources(options, manifest, {**every, **environ}, Path("/folder"))
    assert [source.text for source in found] == expected


@pytest.mark.parametrize("command", ["fetch", "build"])
def test_sources_that_no_shell_would_read(user: User, command: str) -> None:
    """Prevents: a traceback for an apostrophe in the name of a directory."""
    user.environ["QOLA_PREBUILT_URL"] = "/srv/it's"
    said = user.run(command, code=1)[1]
    assert "Traceback" not in said
    assert "/srv/it's" in said
    assert "fix       QOLA_PREBUILT_URL=" in said


@pytest.mark.parametrize(
    "text",
    [
        *("ftp://x/y", "http://", "http://u:secret@x/", "https://x/?a=1", "http://[x/"),
        *("http://x:99999", "http://u:a?secret@x/", "http://u:a/secret@x/", "~nobody-at-all/x"),
        *("http://u:[secret@x", "https://u:secret@[x/"),
    ],
)
def test_no_source(text: str) -> None:
    """Prevents: a password in messages; URLs that mean something else with a name behind them."""
    with pytest.raises(QolaError, match="expected  an http, https or file URL") as caught:
        parse_source(NamedSource(text, Path("/"), "--prebuilt"), Transport())
    assert "secret" not in str(caught.value)


def te_files(name: str, *files: str) -> dict[str, bytes]:
    """What TransformerEngine's upload script makes: an archive of one directory, and its digest."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"\x7fELF"))
    digest = hashlib.sha256(data.getvalue()).hexdigest().encode()
    return {f"{name}.tar.gz": data.getvalue(), f"{name}.tar.gz.sha256": digest + b"\n"}


def te_server(user: User, name: str, *files: str) -> Files:
    """A server with one archive in TransformerEngine's layout."""
    server = user.serve(te_files(name, *files))
    user.environ["NVTE_AITER_PREBUILT_BASE_URL"] = server.url
    return server


@pytest.mark.parametrize("name", [TE_NAME, TE_NAME.replace("7", "7.2")])
def test_transformer_engine_s_layout(user: User, name: str) -> None:
    """Prevents: bundles that TransformerEngine's CI made of no use; their gaps not told."""
    files = (LIBRARY_FILE, "include/qola_config.h")
    server = te_server(user, name, *files)
    said = user.fetch(COMMIT)
    assert "warning" in said
    assert "does not cover archs, patches, edits" in said
    # qola's own key goes first.
    assert server.paths()[0].endswith(".manifest.json")
    assert all((user.output / file).is_file() for file in files)
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["prebuilt"]["layout"] == "transformer-engine"


def test_transformer_engine_s_layout_for_lazy_libraries(user: User) -> None:
    """Prevents: TransformerEngine's own prebuilts refused where its NVTE_CK_JIT is on."""
    te_server(user, TE_NAME, LIBRARY_FILE, "include/qola_config.h")
    user.environ["NVTE_CK_JIT"] = "1"
    assert "these have their kernels inside" in user.fetch(COMMIT)
    assert json.loads((user.output / "manifest.json").read_text())["lazy"] is False


def test_transformer_engine_s_layout_for_a_checkout(user: User) -> None:
    """Prevents: TransformerEngine's own tree of AITER, a submodule, without its prebuilts."""
    tree = write(user.directory / "aiter", {"aiter/jit/optCompilerConfig.json": "{}"})
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        git(tree, *command)
    te_server(user, f"rocm-7_aiter-{git(tree, 'rev-parse', 'HEAD')}", LIBRARY_FILE)
    user.fetch(f"--aiter-root={tree}")
    # A directory of somebody else's repository is not a checkout of AITER.
    (tree / ".git").rename(user.directory / ".git")
    user.fetch(f"--aiter-root={tree}", code=9)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((COMMIT, SIGNED), "it is not signed"),
        ((COMMIT, "--static"), "it has full libraries, and nothing else"),
        # The pinned wheel has no commit.
        ((), "no full commit"),
    ],
)
def test_where_transformer_engine_s_layout_cannot_serve(
    user: User, words: tuple[str, ...], reason: str
) -> None:
    """Prevents: an archive in whose place something else is asked for."""
    server = te_server(user, TE_NAME, LIBRARY_FILE)
    assert reason in user.fetch(*words, code=9)
    assert all(path.endswith(".manifest.json") for path in server.paths())


def test_transformer_engine_s_layout_is_not_trusted(user: User) -> None:
    """Prevents: another's namespace or a damaged archive installed."""
    server = te_server(user, TE_NAME, "lib/te_libmha_fwd.so")
    assert "passed over" in user.fetch(COMMIT, code=9)
    server.content[f"/{TE_NAME}.tar.gz.sha256"] = b"0" * 64
    said = user.fetch(COMMIT, code=10)
    right = hashlib.sha256(server.content[f"/{TE_NAME}.tar.gz"]).hexdigest()
    assert all(digest in said for digest in ("0" * 64, right))
    del server.content[f"/{TE_NAME}.tar.gz.sha256"]
    assert "no .sha256 there" in user.fetch(COMMIT, code=9)


def test_transformer_engine_s_layout_is_kept(user: User) -> None:
    """Prevents: gigabytes downloaded for each build; an offline machine without what it has."""
    archive, checksum = f"/{TE_NAME}.tar.gz", f"/{TE_NAME}.tar.gz.sha256"
    server = te_server(user, TE_NAME, LIBRARY_FILE)
    said = user.fetch(COMMIT, "--offline", code=9)
    assert f"{server.url}{archive}: not asked: offline" in said
    assert not server.requests
    for _ in range(2):
        user.fetch(COMMIT)
    assert [server.paths().count(path) for path in (checksum, archive)] == [2, 1]
    asked = len(server.requests)
    shutil.rmtree(user.output)
    assert "does not cover archs" in user.fetch(COMMIT, "--offline")
    assert len(server.requests) == asked
    assert (user.output / LIBRARY_FILE).is_file()
    # Another archive under the same name.
    more = te_files(TE_NAME, LIBRARY_FILE, "include/qola_config.h")
    server.content |= {f"/{name}": data for name, data in more.items()}
    user.fetch(COMMIT)
    assert (user.output / "include/qola_config.h").is_file()
    (copy,) = (user.directory / "cache/qola/prebuilt").glob(f"*{archive}")
    copy.write_bytes(b"damaged")
    said = user.fetch(COMMIT, "--offline", code=10)
    assert hashlib.sha256(b"damaged").hexdigest() in said
    user.fetch(COMMIT)
    assert server.paths().count(archive) == 3


def test_offline_a_signed_one_beside_an_unsigned_copy(user: User) -> None:
    """Prevents: a copy of no use that hides the directory with the right bundle."""
    unsigned = shutil.copytree(user.published, user.directory / "unsigned")
    (unsigned / user.signature).unlink()
    user.fetch("unsigned")
    user.fetch("unsigned", SIGNED, "--offline", code=10)
    # A copy that must not be used is not a miss.
    user.fetch(SIGNED, "--offline", code=10)
    said = user.fetch("published", SIGNED, "--offline")
    assert "the copy in the cache is not used" in said


@pytest.mark.parametrize(
    ("command", "words"),
    [("build", ("publish", "--to=new")), ("query", ("publish", "--to=new", "--print-key"))],
)
def test_settings_that_no_key_has(user: User, command: str, words: tuple[str, ...]) -> None:
    """Prevents: a signed bundle of what a user's or a machine's .bazelrc says."""
    program = user.directory / "bazel"
    text = "import sys; open('{0}/asked', 'w').write(' '.join(sys.argv[1:])); sys.exit(7)"
    program.write_text(f"#!{sys.executable}\n{text.format(user.directory)}\n")
    program.chmod(0o755)
    user.environ["QOLA_BAZEL"] = str(program)
    if command == "query":
        user.environ["QOLA_ROCM"] = "/opt/rocm"
    user.run(*words, code=5)
    startup, _, _ = (user.directory / "asked").read_text().partition(f"{command} ")
    assert "--nohome_rc" in startup
    # In bazelw's tree the machine's does not show, and the tree's own names the registry.
    in_tree = Path("/usr/share/qola/registry").exists()
    assert ("--nosystem_rc" in startup) != in_tree


BAZEL_SAYS = """\
INFO: Invocation ID: 7
ERROR: An error occurred during the fetch of repository 'qola_rocm':
   Traceback (most recent call last):
\tFile "/rocm_repository.bzl", line 95, column 13, in _local
\t\tfail(finding(
Error in fail: qola: ToolchainError: no ROCm at the path that was named
  found:   no runnable /no/rocm/bin/hipcc
ERROR: no such package '@@qola_rocm//': and so on
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (BAZEL_SAYS, "no runnable /no/rocm/bin/hipcc\n"),
        ("bazelw: error: no network\nbazelw: to fix: plug it in\n", "no network\n"),
        ("\udcff\n", "\ufffd\n"),
        ("", "exit code 1, before anything was built\n"),
    ],
)
def test_a_rocm_that_bazel_does_not_find(user: User, said: str, told: str) -> None:
    """Prevents: sixty lines of Bazel's, or none, for a QOLA_ROCM that is not there."""
    program, text = user.directory / "bazel", user.directory / "said"
    text.write_text(said, errors="surrogateescape")
    program.write_text(f"#!/bin/sh\ncat {text} >&2\nexit 1\n")
    program.chmod(0o755)
    user.environ |= {"QOLA_BAZEL": str(program), "QOLA_ROCM": "/no/rocm", "PATH": "/usr/bin:/bin"}
    error = user.fetch("published", code=5).partition("error: ")[2]
    assert error.startswith("QOLA_ROCM, of which Bazel is asked\n")
    assert told in error
    assert not {"Traceback", "INFO:", "ERROR:"} & {*error.split()}
    assert "QOLA_ROCM=pinned takes the ROCm that qola pins" in error
    program.write_bytes(b"\x7fELF")
    assert f"error: {program}\n  found     Exec format error" in user.fetch("published", code=5)
