"""The command line's qola fetch, qola publish and qola keygen, and build's options about them."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from qola.build.forms import Forms, check_static, choose_lazy
from qola.build.setup import ResolvedBuild, resolve_build
from qola.cli.build import RESULT_AS_JSON, print_modules
from qola.cli.commands import add_command
from qola.cli.console import Surroundings
from qola.cli.options import (
    BUILD,
    FORMS,
    PREBUILT,
    REQUEST,
    add_manifest,
    add_options,
    build_options,
    build_request,
    output_place,
    prebuilt_options,
)
from qola.errors import ExitCode
from qola.prebuilt import fetch, publish, signature, store
from qola.prebuilt.key import Key
from qola.prebuilt.options import NamedSource, parse_source
from qola.prebuilt.record import archive_name

_PASSWORD = "QOLA_PREBUILT_PASSWORD"

_CODES = (
    *(ExitCode.AITER, ExitCode.TOOLCHAIN, ExitCode.PLAN),
    *(ExitCode.NO_PREBUILT, ExitCode.UNREACHABLE),
)


def add_commands(commands: Any) -> None:
    """Add fetch, publish and keygen to the parser's subcommands."""
    own: tuple[ExitCode, ...] = (*_CODES, ExitCode.PREBUILT)
    found = add_command(commands, "fetch", _fetch, own, words="MANIFEST")
    add_manifest(found)
    add_options(found, "output_dir", *REQUEST, *FORMS, *PREBUILT)
    add_options(found, "json", help=RESULT_AS_JSON)
    _add_key_options(found)
    own = (*_CODES, ExitCode.CODEGEN, ExitCode.BUNDLE, ExitCode.PREBUILT)
    put = add_command(commands, "publish", _publish, own, words="MANIFEST --to DIR_OR_URL")
    add_manifest(put)
    put.add_argument("--to", metavar="DIR_OR_URL", help="a directory, or a URL that takes PUT")
    put.add_argument(
        "--secret-key",
        type=Path,
        metavar="FILE",
        help="sign with this key of minisign; $QOLA_PREBUILT_PASSWORD is its password",
    )
    add_options(put, "overwrite", help="replace another bundle with the same key")
    add_options(put, *REQUEST, *BUILD, *FORMS)
    add_options(put, "json", help="print what was published, or the error, as JSON")
    _add_key_options(put)
    epilog = "$QOLA_PREBUILT_PASSWORD encrypts the secret key"
    keys = add_command(commands, "keygen", _keygen, (), epilog=epilog)
    keys.add_argument("prefix", type=Path, metavar="PREFIX", help="the files without their ends")


def _add_key_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-key", action="store_true", help="print the key of the bundle, and do nothing else"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print what the key is the digest of, as JSON, and do nothing else",
    )


def _chosen(args: argparse.Namespace, around: Surroundings) -> tuple[ResolvedBuild, Key, Forms]:
    """Return what the command line means, its key, and which kinds of libraries."""
    forms = Forms(choose_lazy(args.lazy, around.environ), args.static)
    chosen = resolve_build(build_request(args, around), around.environ)
    check_static(forms.static, forms.lazy, chosen.modules)
    fetch.refuse_what_is_lacking(chosen)
    key = fetch.key_of(chosen, forms, args.bazel_arg, around.environ)
    return chosen, key, forms


def _printed(args: argparse.Namespace, around: Surroundings, key: Key) -> bool:
    """Print the key, or what it is made of, where that is asked for."""
    if args.explain:
        content = {"key": key.text, "digest": key.digest, "inputs": key.inputs}
        around.console.line(json.dumps(content, indent=2, sort_keys=True))
    elif args.print_key:
        around.console.line(key.text)
    return bool(args.explain or args.print_key)


def _fetch(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola fetch``."""
    chosen, key, forms = _chosen(args, around)
    if _printed(args, around, key):
        return ExitCode.DONE
    result = fetch.fetch(
        chosen,
        key,
        forms,
        prebuilt_options(args, around),
        around.environ,
        (around.directory / output_place(args, chosen.manifest.namespace)).absolute(),
    )
    if not print_modules(result, around.console, as_json=args.json):
        source: str = cast("Mapping[str, Any]", result)["prebuilt"]["source"]
        unasked = ", no source was asked" if source.startswith(store.CACHE) else ""
        around.console.line(f"Fetched from {source}{unasked}.")
    return ExitCode.DONE


def _publish(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola publish``."""
    environ = around.environ
    # Before anything is built, which may take hours.
    password = environ.get(_PASSWORD, "")
    secret = None
    if args.secret_key:
        secret = signature.read_secret_key(around.directory / args.secret_key, password)
    chosen, key, forms = _chosen(args, around)
    if _printed(args, around, key):
        return ExitCode.DONE
    if args.to is None:
        args.parser.error("the following arguments are required: --to")
    transport = fetch.transport_of(environ)
    target = parse_source(NamedSource(args.to, around.directory, "--to"), transport)
    # A server that does not answer is known before anything is built.
    publish.published(key, target, overwrite=args.overwrite)
    options = build_options(args)
    with tempfile.TemporaryDirectory(prefix="qola-") as directory:
        archive = Path(directory) / archive_name(key.text)
        packed = publish.build_archive(chosen, forms, options, environ, archive)
        # Hours may have passed, in which somebody edited what the key is made of.
        _, after, _ = _chosen(args, around)
        publish.check_same(key, after)
        done = publish.publish(key, archive, packed, target, secret, overwrite=args.overwrite)
    if args.json:
        said = {"key": key.text, "target": str(target), "written": done.written}
        size_and_digest = {"size": done.record.archive.size, "sha256": done.record.archive.sha256}
        around.console.line(json.dumps(said | size_and_digest, indent=2, sort_keys=True))
        return ExitCode.DONE
    words = "published" if done.written else "there already"
    size = done.record.archive.size / 1e6
    around.console.line(f"{key.text}: {words}, {size:.1f} MB, {target}")
    return ExitCode.DONE


def _keygen(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola keygen``."""
    if not args.prefix.name:
        args.parser.error(f"PREFIX has to end in a name, which {args.prefix} does not")
    prefix = around.directory / args.prefix
    key = signature.write_pair(prefix, around.environ.get(_PASSWORD, ""))
    around.console.line(signature.shown(key))
    return ExitCode.DONE
