"""Prints which compiles of a manifest's Python modules a change repeats, from two plans.

    bench/python bench/compiled_again.py --aiter TREE BEFORE.toml AFTER.toml [--aiter-after TREE]

The key of a compile is that of its action in Bazel: its flags and archs, and path and content of
each file that it may read. The compiler, PyTorch and ROCm's headers are taken to be the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.tree import read_tree
from qola.cli.console import Table, to_text
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.model import Plan, TorchModule
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola_base.files import sha256_of, sha256_of_text


@dataclass(frozen=True)
class Compiles:
    """The keys of the compiles of a plan: by module, and by the name of the source."""

    keys: dict[str, dict[str, str]]

    @staticmethod
    def from_manifest(manifest: Path, aiter: Path) -> Compiles:
        """Plan a manifest in memory; QolaError if that fails."""
        tree = read_tree(aiter)
        request = Request("bench", loads(manifest.read_text("utf-8"), file=str(manifest)), tree)
        plan = build_plan(resolve(request), Folder())
        headers: dict[str, str] = {}
        for header_set in plan.header_sets:
            for file in header_set.files:
                headers[file] = headers.get(file) or sha256_of(aiter / file)
        return Compiles(
            {module.name: dict(_keys(plan, module, headers)) for module in plan.torch_modules}
        )


def _keys(plan: Plan, module: TorchModule, headers: dict[str, str]) -> Iterator[tuple[str, str]]:
    generated = {found.file: found.sha256 for found in module.generated}
    for source in module.sources:
        own = f"{module.name}/generated/{source.archs[0] if module.per_arch else ''}"
        name = module.batch_headers if source.name in module.batch_files else module.headers
        header_set = plan.header_set(name)
        flags = (*module.copts, *module.source_copts.get(source.name, ()))
        yield (
            " ".join((source.name, *(source.archs if module.per_arch else ()))),
            sha256_of_text(
                repr(
                    (
                        (source.file, source.sha256, source.archs or plan.archs, flags),
                        header_set.include_dirs,
                        [(file, headers[file]) for file in header_set.files],
                        [
                            (file, generated[file])
                            for file in module.batch_files.get(source.name, sorted(generated))
                            if file.startswith(own)
                        ],
                    )
                )
            ),
        )


def table(before: Compiles, after: Compiles) -> Table:
    """Return a row for each module after the change, and their sum."""
    rows = []
    for module, keys in sorted(after.keys.items()):
        old = before.keys.get(module, {})
        again = sum(key != old.get(name) for name, key in keys.items())
        rows.append((module, (len(old), len(keys), again)))
    total = [sum(counts) for counts in zip(*(counts for _, counts in rows), strict=True)]
    columns = ("module", "before", "after", "compiled again or new")
    shown = [(module, *map(str, counts)) for module, counts in rows]
    return Table("Compiles", columns, shown, ("all", *map(str, total)), numbers=3)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, metavar="BEFORE.toml")
    parser.add_argument("after", type=Path, metavar="AFTER.toml")
    parser.add_argument("--aiter", type=Path, required=True, metavar="TREE")
    parser.add_argument("--aiter-after", type=Path, metavar="TREE", help="default: the same")
    args = parser.parse_args()
    before = Compiles.from_manifest(args.before, args.aiter)
    after = Compiles.from_manifest(args.after, args.aiter_after or args.aiter)
    print(to_text(table(before, after)))


if __name__ == "__main__":
    main()
