"""The command line's qola fetch, qola publish and qola keygen, and build's options about them."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from qola.build.bazel import BuildOptions
from qola.build.forms import Forms, check_static, choose_lazy
from qola.build.setup import Chosen, Progress, choose_all
from qola.cli.build import print_result
from qola.cli.context import Surroundings
from qola.cli.options import (
    add_build_options,
    add_forms,
    add_manifest,
    add_output_dir,
    add_parser,
    add_prebuilt_options,
    add_request_options,
    prebuilt_options,
    request_of_build,
)
from qola.prebuilt import fetch, publish, signature
from qola.prebuilt.key import Key
from qola.prebuilt.options import parse_source
from qola.prebuilt.record import archive_name

_PASSWORD = "QOLA_PREBUILT_PASSWORD"

_FETCH_EXIT_CODES = """\
exit codes: 0 fetched; 9 no source that was asked has it; 10 one has it, with a wrong digest,
signature or content, or redirects to http; 1 an error of qola's own; 2 wrong usage or an invalid
manifest; 3 the AITER tree or a patch; 5 no GPU for native; 130 interrupted; 143 terminated"""

_PUBLISH_EXIT_CODES = """\
exit codes: 0 published, or there already; 8 a module or the bundle was not built; 10 another bundle
with the same key is there; otherwise as qola build"""


def add_commands(commands: Any) -> None:
    """Add fetch, publish and keygen to the parser's subcommands."""
    text = "install a prebuilt bundle of a manifest, and build nothing"
    found = add_parser(commands, "fetch", text, _FETCH_EXIT_CODES)
    add_manifest(found)
    add_output_dir(found, required=False)
    add_request_options(found)
    add_forms(found)
    add_prebuilt_options(found)
    _add_key_options(found)
    found.set_defaults(run=_fetch)
    text = "build a manifest's bundle and put it where others fetch it"
    put = add_parser(commands, "publish", text, _PUBLISH_EXIT_CODES)
    add_manifest(put)
    put.add_argument("--to", metavar="DIR_OR_URL", help="a directory, or a URL that takes PUT")
    put.add_argument(
        "--secret-key",
        type=Path,
        metavar="FILE",
        help="sign with this key of minisign; $QOLA_PREBUILT_PASSWORD is its password",
    )
    put.add_argument(
        "--overwrite", action="store_true", help="replace another bundle with the same key"
    )
    add_build_options(put)
    add_forms(put)
    _add_key_options(put)
    put.set_defaults(run=_publish)
    text = "make a pair of keys, PREFIX.key and PREFIX.pub, to sign bundles with"
    keys = add_parser(commands, "keygen", text, "$QOLA_PREBUILT_PASSWORD encrypts the secret key")
    keys.add_argument("prefix", type=Path, metavar="PREFIX", help="the files without their ends")
    keys.set_defaults(run=_keygen)


def _add_key_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-key", action="store_true", help="print the key of the bundle, and do nothing else"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print what the key is the digest of, as JSON, and do nothing else",
    )


def _progress(around: Surroundings) -> Progress:
    return lambda text: around.console.note(f"qola: {text}")


def _chosen(
    args: argparse.Namespace, around: Surroundings, progress: Progress
) -> tuple[Chosen, Key, Forms]:
    """Returns what the command line means, its key, and which kinds of libraries."""
    forms = Forms(choose_lazy(args.lazy, around.environ, progress), args.static)
    chosen = choose_all(request_of_build(args, around), around.environ, progress)
    check_static(forms.static, forms.lazy, chosen.modules, around.environ, progress)
    fetch.refuse_python_modules(chosen)
    key = fetch.key_of(chosen, forms, args.bazel_arg, around.environ, progress)
    return chosen, key, forms


def _printed(args: argparse.Namespace, around: Surroundings, key: Key) -> bool:
    """Prints the key, or what it is made of, where that is asked for."""
    if args.explain:
        content = {"key": key.text, "digest": key.digest, "inputs": key.inputs}
        around.console.line(json.dumps(content, indent=2, sort_keys=True))
    elif args.print_key:
        around.console.line(key.text)
    return bool(args.explain or args.print_key)


def _fetch(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola fetch``."""
    progress = _progress(around)
    chosen, key, forms = _chosen(args, around, progress)
    if _printed(args, around, key):
        return 0
    if args.output_dir is None:
        args.parser.error("the following arguments are required: -o/--output-dir")
    result = fetch.fetch(
        chosen,
        key,
        forms,
        prebuilt_options(args, around),
        around.environ,
        (around.directory / args.output_dir).absolute(),
        progress,
    )
    print_result(result, around.console)
    return 0


def _publish(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola publish``."""
    progress, environ = _progress(around), around.environ
    # Before anything is built, which may take hours.
    password = environ.get(_PASSWORD, "")
    secret = None
    if args.secret_key:
        secret = signature.read_secret_key(around.directory / args.secret_key, password)
    chosen, key, forms = _chosen(args, around, progress)
    if _printed(args, around, key):
        return 0
    if args.to is None:
        args.parser.error("the following arguments are required: --to")
    transport = fetch.transport_of(environ, progress)
    target = parse_source(args.to, around.directory, transport, "--to")
    # A server that does not answer is known before anything is built.
    publish.published(key, target, overwrite=args.overwrite)
    options = BuildOptions(args.keep_going, args.jobs, args.verbose, tuple(args.bazel_arg))
    with tempfile.TemporaryDirectory(prefix="qola-") as directory:
        archive = Path(directory) / archive_name(key.text)
        packed = publish.build_archive(chosen, forms, options, environ, archive, progress)
        # Hours may have passed, in which somebody edited what the key is made of.
        _, after, _ = _chosen(args, around, progress)
        publish.check_same(key, after)
        done = publish.publish(key, archive, packed, target, secret, overwrite=args.overwrite)
    words = "published" if done.written else "there already"
    size = done.record.archive.size / 1e6
    around.console.line(f"{key.text}: {words}, {size:.1f} MB, {target}")
    return 0


def _keygen(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola keygen``."""
    prefix = around.directory / args.prefix
    key = signature.write_pair(prefix, around.environ.get(_PASSWORD, ""))
    around.console.line(signature.shown(key))
    return 0
