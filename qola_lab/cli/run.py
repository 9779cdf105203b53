"""``qola verify`` and ``qola dispatch``: run libraries without a GPU, or read their dispatch."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from qola.build.programs import NotBuiltError, build_program, run_program
from qola.build.setup import resolve_build
from qola.cli import options
from qola.cli.commands import PLANNING, add_command
from qola.cli.console import Surroundings
from qola.cli.plan import request_of
from qola.common.extras import needs
from qola.common.folder import Folder
from qola.common.version import docs_url
from qola.plan import planner
from qola.query.kernels import QueryError
from qola_base.errors import ExitCode, Finding
from qola_base.json_types import json_fields

CODES = (*PLANNING, ExitCode.NOT_BUILT, ExitCode.WRONG)


def add_commands(commands: Any) -> None:
    """Add verify and dispatch to the parser's subcommands."""
    _add_verify(commands)
    _add_dispatch(commands)


def _add_verify(commands: Any) -> None:
    limits = f"The emulator needs no GPU. Its limits: {docs_url('internals/emulation.md')}"
    parser = add_command(commands, "verify", _verify, CODES, words="MANIFEST", epilog=limits)
    options.add_manifest(parser)
    options.add_options(parser, "kernels", "samples", "seed")
    parser.add_argument(
        "--max-samples",
        type=options.positive,
        metavar="N",
        help="most problems for a kernel of which code has not run (default: 3 times --samples)",
    )
    parser.add_argument(
        "--max-instructions",
        type=options.positive,
        metavar="N",
        help="limit for a launch, which then counts as endless (default: 100 million)",
    )
    options.add_options(parser, "json", help="print JSON: problems, largest errors, what was found")
    parser.add_argument("--junit", metavar="FILE.xml", help="also write a test suite for CI there")
    options.add_options(parser, "output")
    parser.add_argument(
        "--verdicts",
        metavar="FILE",
        help="also write the verdict of each kernel there, by digests, in a file to commit",
    )
    options.add_options(parser, *options.REQUEST, *options.BUILD)


def _verify(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola verify``."""
    words = [f"--samples={args.samples}", f"--seed={args.seed}"]
    words += [f"--max-samples={n}"] if (n := args.max_samples) else []
    words += [f"--max-instructions={n}"] if (n := args.max_instructions) else []
    words += [f"--kernels={pattern}" for pattern in args.kernels]
    words += [f"--processes={args.jobs}"] if args.jobs else []
    words += ["--json"] if args.json else []
    words += _paths(around, junit=args.junit, html=args.output, verdicts=args.verdicts)
    return _run_program("verify", words, args, around)


def _paths(around: Surroundings, **paths: str | None) -> list[str]:
    """Return options with absolute paths, because the program runs in another directory."""
    directory = around.directory.absolute()
    return [f"--{name}={directory / path}" for name, path in paths.items() if path]


def _run_program(
    name: str, words: Sequence[str], args: argparse.Namespace, around: Surroundings
) -> int:
    """Build a program for a manifest's libraries and run it; return its exit code.

    The program prints its errors itself, also as JSON if requested.

    Raises:
        NotBuiltError: the libraries do not build, and JSON is requested.
    """
    console, environ = around.console, around.environ
    chosen = resolve_build(options.build_request(args, around), environ)
    program = build_program(name, chosen, options.build_options(args), environ)
    if program.path is None:
        if args.json:
            place = chosen.manifest.file
            raise NotBuiltError(Finding(place, program.error, "libraries that build"))
        console.line(f"FAILED: the libraries were not built\n{indent(program.error, '  ')}")
        return ExitCode.NOT_BUILT
    quiet = subprocess.DEVNULL if args.quiet else None
    console.out.flush()
    ran = run_program(program.path, words, environ, stderr=quiet)
    output = ran.stdout.decode(errors="replace").rstrip("\n")
    if output or not args.json:
        console.line(output)
    return ran.returncode if ran.returncode >= 0 else ExitCode.ERROR


_HELP = """\
With words, the dispatch of the planned libraries is read, and nothing is built:
  qola dispatch mine.toml dtype=bf16 seqlen_q=4096 hdim=128 mask_type=causal
It prints each kernel with its kind (CK instance, assembly or Triton) and its arguments, or the
nearest kernels and what each of them needs; exit code 2 if no kernel serves the problem.

  dtype                bf16, fp16, fp32, fp8bf16, ... (required)
  hdim                 head dimension: 128, or that of Q and K and that of V: 192x128 (required);
                       short for hdim_q and hdim_v
  seqlen_q, seqlen_k   length of Q (required), and of K and V (default: that of Q); in group mode
                       lengths with , between
  batch                number of sequences of these lengths (default: 1)
  mode                 batch, or group for concatenated sequences (default: group for lists)
  nhead_q, nhead_k     heads of Q (default: 1), and of K and V (default: those of Q)
  direction            fwd, fwd_splitkv, batch_prefill, pagedkv_prefill, fwd_appendkv or bwd
                       (default: each of fwd and bwd that the manifest has a library for)
  mask_type            no, causal, top_left or bottom_right (default: no); causal is bottom_right
                       with window_size_right=0
  window_size_left, window_size_right
                       keys before and after the diagonal that a query sees (default: -1, all)
  bias_type            no, bias or alibi (default: no)
  dropout_p            probability (default: 0)
  logits_soft_cap      number (default: 0)
  return_lse           yes or no (default: either)
  has_dbias, deterministic
                       yes or no (default: no); of bwd
  page_block_size      rows of K and V in a page (default: no pages)
  num_splits           of fwd_splitkv (default: 1)
  use_asm              yes if AITER's assembly (v3) kernels may serve it (default: no)
  hdim_q, hdim_v, softmax_scale, nhead_bias, batched_alibi_slopes, drop_seed, drop_offset,
  min_seqlen_q, seqlen_knew, rope_type, rotary_dim, has_sink, how_v3_bf16_cvt, is_v3_atomic_fp32,
  order, row_padding, page_seed
                       as in `qola.fmha.AttentionProblem` and its layout

With --launch or --problems the libraries are built, and their host code runs up to the launch,
without a GPU. Only these options show grids and the assembly kernels, which AITER's host code
selects. The command fails if a library launches no kernel, or kernels that its parsed dispatch does
not predict. Directions whose dispatch cannot be parsed are reported, without an error.

A file of problems has one JSON object per line, with these fields. Required are
  {"direction": "fwd", "dtype": "bf16", "hdim_q": 128, "seqlen_q": [4096], "seqlen_k": [4096],
   "nhead_q": 8}
where seqlen_q and seqlen_k list the length of each sequence.
"""


def _add_dispatch(commands: Any) -> None:
    words = "MANIFEST [FIELD=VALUE...]"
    parser = add_command(
        *(commands, "dispatch", _dispatch, CODES), words=words, epilog=_HELP.rstrip()
    )
    options.add_manifest(parser, more=(words, "the manifest, then a problem"))
    parser.add_argument(
        "--launch",
        action="store_true",
        help="also build the libraries, and show what they launch for the problem",
    )
    parser.add_argument(
        "--problems",
        metavar="FILE",
        help="problems of a file, instead of words; sweep: problems at and beyond the limits "
        "of the kernels",
    )
    parser.add_argument(
        "--count",
        type=options.positive,
        default=1000,
        metavar="N",
        help="problems of a sweep for each library and arch (default: %(default)s)",
    )
    seed = "of a sweep: the same problems for the same seed (default: %(default)s)"
    options.add_options(parser, "seed", help=seed)
    options.add_options(parser, "json", help="print a line of JSON for each problem and arch")
    options.add_options(parser, *options.REQUEST, *options.BUILD)


def _dispatch(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola dispatch``."""
    if args.problems:
        if args.words:
            args.parser.error(f"a problem, {' '.join(args.words)}, and --problems")
        return _launch(args.problems, args, around)
    if not args.words:
        expected = "a problem as FIELD=VALUE words, or --problems FILE"
        fix = f"qola dispatch {args.manifest} dtype=bf16 seqlen_q=4096 hdim=128 mask_type=causal"
        finding = Finding("the command line", "no problem", expected, fix)
        raise QueryError(finding, "nothing to dispatch")
    problems, served = _answer(args, around)
    if not args.launch:
        return ExitCode.DONE if served else ExitCode.USAGE
    with tempfile.TemporaryDirectory(prefix="qola-") as directory:
        file = Path(directory, "problem.jsonl")
        file.write_text("".join(f"{one.to_json()}\n" for one in problems), encoding="utf-8")
        if not args.json:
            around.console.line()
        return _launch(str(file), args, around)


def _launch(problems: str, args: argparse.Namespace, around: Surroundings) -> int:
    """Build the libraries, and let them launch problems; return the program's exit code."""
    words = [f"--count={args.count}", f"--seed={args.seed}"]
    words += ["--problems=sweep"] if problems == "sweep" else _paths(around, problems=problems)
    words += ["--json"] if args.json else []
    return _run_program("dispatch", words, args, around)


def _answer(args: argparse.Namespace, around: Surroundings) -> tuple[list[Any], bool]:
    """Print which kernels serve a problem; return the problems, and whether any is served."""
    with needs("verify", "qola dispatch"):
        from qola_lab.fmha import dispatch_answers as answers  # noqa: PLC0415
        from qola_lab.problems import fields  # noqa: PLC0415
    # Before planning, which takes seconds: a misspelt word.
    fields.parse_for_directions(args.words, ("fwd", "bwd"))
    request = request_of(args, around)
    found: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="qola-") as name:
        directory = Path(name)
        plan = planner.make_plan(request, Folder(directory))
        (directory / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        directions = answers.planned_directions(plan) or ["fwd"]
        for problem in fields.parse_for_directions(args.words, directions):
            any_lse = not any(word.startswith("return_lse=") for word in args.words)
            found += answers.answer(plan, directory, problem, any_lse=any_lse)
    for one in found:
        for line in [json.dumps(one, default=json_fields)] if args.json else one.lines():
            around.console.line(line)
    served = any(one.kernels for one in found)
    return list(dict.fromkeys(one.problem for one in found)), served
