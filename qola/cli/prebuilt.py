"""``qola fetch``, ``qola publish`` and ``qola keygen``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from qola.build.setup import ResolvedBuild, resolve_build
from qola.cli import options
from qola.cli.build import RESULT_AS_JSON, print_modules
from qola.cli.commands import add_command
from qola.cli.console import Surroundings
from qola.plan.spec import Forms
from qola.prebuilt import fetch, publish, signature, store
from qola.prebuilt.key import Key
from qola.prebuilt.options import NamedSource, parse_source
from qola_base.errors import ExitCode

_PASSWORD = "QOLA_PREBUILT_PASSWORD"

_CODES = (
    *(ExitCode.AITER, ExitCode.TOOLCHAIN, ExitCode.PLAN),
    *(ExitCode.NO_PREBUILT, ExitCode.UNREACHABLE, ExitCode.PREBUILT),
)


def add_commands(commands: Any) -> None:
    """Add fetch, publish and keygen to the parser's subcommands."""
    found = add_command(commands, "fetch", _fetch, _CODES, words="MANIFEST")
    options.add_manifest(found)
    options.add_options(found, "output_dir", *options.REQUEST, *options.FORMS, *options.PREBUILT)
    options.add_options(found, "json", help=RESULT_AS_JSON)
    _add_key_options(found)
    codes = (*_CODES, ExitCode.CODEGEN, ExitCode.BUNDLE)
    put = add_command(commands, "publish", _publish, codes, words="MANIFEST --to DIR_OR_URL")
    options.add_manifest(put)
    put.add_argument("--to", metavar="DIR_OR_URL", help="a directory, or a URL that takes PUT")
    put.add_argument(
        "--secret-key",
        type=Path,
        metavar="FILE",
        help="sign with this key of minisign; $QOLA_PREBUILT_PASSWORD is its password",
    )
    options.add_options(put, "overwrite", help="replace another bundle with the same key")
    options.add_options(put, *options.REQUEST, *options.BUILD, *options.FORMS)
    options.add_options(put, "json", help="print what was published, or the error, as JSON")
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


def _chosen(args: argparse.Namespace, around: Surroundings) -> tuple[ResolvedBuild, Key]:
    chosen = resolve_build(
        options.build_request(args, around, Forms(args.lazy, args.static)), around.environ
    )
    fetch.refuse_what_is_lacking(chosen)
    return chosen, fetch.key_of(chosen, args.bazel_arg, around.environ)


def _printed(args: argparse.Namespace, around: Surroundings, key: Key) -> bool:
    """Print the key, or the inputs of its digest, if requested; return whether."""
    if args.explain:
        around.console.json({"key": key.text, "digest": key.digest, "inputs": key.inputs})
    elif args.print_key:
        around.console.line(key.text)
    return bool(args.explain or args.print_key)


def _fetch(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola fetch``."""
    chosen, key = _chosen(args, around)
    if _printed(args, around, key):
        return ExitCode.DONE
    result = fetch.fetch(
        chosen,
        key,
        options.prebuilt_options(args, around),
        around.environ,
        (around.directory / options.output_place(args, around, chosen.manifest)).absolute(),
    )
    if args.json:
        around.console.json(result)
    else:
        print_modules(result, around.console)
        source = result["prebuilt"]["source"]
        unasked = ", no source was asked" if source.startswith(store.CACHE) else ""
        around.console.line(f"Fetched from {source}{unasked}.")
    return ExitCode.DONE


def _publish(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola publish``."""
    # Before anything is built, which may take hours.
    environ, secret = around.environ, None
    if args.secret_key:
        place = around.directory / args.secret_key
        secret = signature.read_secret_key(place, environ.get(_PASSWORD, ""))
    chosen, key = _chosen(args, around)
    if _printed(args, around, key):
        return ExitCode.DONE
    if args.to is None:
        args.parser.error("the following arguments are required: --to")
    target = parse_source(NamedSource(args.to, around.directory, "--to"), environ)
    # A server that does not answer is known before anything is built.
    publish.published(key, target, overwrite=args.overwrite)
    with tempfile.TemporaryDirectory(prefix="qola-") as directory:
        archive = Path(directory) / key.archive_name
        how = options.build_options(args)
        packed = publish.build_archive(chosen, how, environ, archive)
        # Somebody may have edited the inputs of the key during the build.
        publish.check_same(key, _chosen(args, around)[1])
        done = publish.publish(key, archive, packed, target, secret, overwrite=args.overwrite)
    file = done.record.archive
    if args.json:
        found = {"key": key.text, "target": str(target), "written": done.written}
        around.console.json({**found, "size": file.size, "sha256": file.sha256})
    else:
        words = "published" if done.written else "there already"
        around.console.line(f"{key.text}: {words}, {file.size / 1e6:.1f} MB, {target}")
    return ExitCode.DONE


def _keygen(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola keygen``."""
    if not args.prefix.name:
        args.parser.error(f"PREFIX has to end in a name, which {args.prefix} does not")
    prefix = around.directory / args.prefix
    key = signature.write_pair(prefix, around.environ.get(_PASSWORD, ""))
    around.console.line(signature.shown(key))
    return ExitCode.DONE
