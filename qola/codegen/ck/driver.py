"""The generator process: runs CK's generator for one direction, and answers a GeneratorRequest.

Run as ``python -B -S -m qola.codegen.ck.driver REQUEST``, in an empty directory with a fixed hash
seed. Next to REQUEST, a JSON file, it writes ``answer``, a GeneratorAnswer as JSON, or ``refused``,
an error that a user can solve. A traceback on stderr is a bug, here or in CK.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from qola.codegen.ck import unfiltered
from qola.codegen.ck.hazards import find_hazards
from qola.codegen.ck.link import NotUnderstoodError, called_in
from qola.codegen.ck.messages import FilterAnswer, GeneratorAnswer, GeneratorRequest
from qola.codegen.ck.observe import Recording
from qola.codegen.ck.output import (
    RefusedError,
    archs_of,
    check_archs,
    dispatch_source,
    kernel_instance,
    record,
    tags_of,
)
from qola.codegen.ck.reachable import unreachable
from qola.codegen.ck.receipts import emulated, source
from qola.codegen.ck.requested import find_requested, insert_requested
from qola.codegen.ck.rows import Base, Dispatch, Kernel, Row, Selector, read_base
from qola.codegen.process import ignore_bytecode, prepare_generator
from qola.codegen.types import Direction, Explanation, GeneratedSource
from qola.kernel.selection import VariantFilter
from qola_base.errors import Finding
from qola_base.system_errors import disk_error


class _Filtered:
    """A direction whose rows variants can select.

    Raises:
        NotUnderstoodError: CK's generator or its dispatch has an unknown form.
        RefusedError: CK's generator rejects the request.
    """

    def __init__(self, request: GeneratorRequest) -> None:
        self._request = request
        self._bases, self._dispatch, recording = _read(request)
        self._selector = selector = Selector(request, self._bases)
        self._own, self._refused = find_requested(request, recording, self._dispatch, self._bases)
        self._tags = tags_of(request.archs, selector.rows, self._offered())
        if selector.rows and not request.dropped:
            check_archs(request.filters, self._tags, [*selector.rows, *selector.outside])
        self._keepers = (
            {} if request.dropped else {row.key: selector.keepers(row) for row in selector.rows}
        )
        for found in self._own:
            for row in found.rows:
                self._keepers[row.key] = [*self._keepers.get(row.key, ()), found.kernel.filter]
        self._all = insert_requested(selector.rows, selector.order, self._own)
        made = {key: found.rows for found in self._own if found.made for key in found.types}
        # Two kernels of one C++ type cannot be linked: the requested one is built.
        self._replaced = {
            row.key for row in self._all if row not in made.get((row.arch, row.main.traits), (row,))
        }
        # The entries that a filter keeps, and of these the ones to build.
        self._chosen = [
            row for row in self._all if self._keepers.get(row.key) and row.key not in self._replaced
        ]
        # Numbers of these entries by filter: thousands of variants are compared by identity.
        self._counts = Counter(id(w) for row in self._chosen for w in self._keepers[row.key])
        # Preceding entries take all of their problems.
        self._unreachable = unreachable(self._chosen, self._text) if self._chosen else {}
        self._rows = [
            row
            for row in self._chosen
            if request.keep_unreachable or row.key not in self._unreachable
        ]
        self._kept: dict[str, tuple[Kernel, set[int]]] = {
            name: (kernel, set())
            for name, (kernel, keep) in selector.loose().items()
            if keep and not request.dropped
        }
        indices_of: dict[int, set[int]] = {}
        for row in self._rows:
            keepers = self._keepers[row.key]
            # Rows for the same problems share the list of their keepers.
            own = indices_of.setdefault(id(keepers), set())
            if not own:
                own.update(w.index for w in keepers if w.index >= 0)
            for kernel in row.kernels:
                self._kept.setdefault(kernel.name, (kernel, set()))[1].update(own)

    def answer(self) -> GeneratorAnswer:
        request, selector = self._request, self._selector
        dispatches = dict(self._dispatch_source(*folder) for folder in request.folders)
        in_front = {key: front[0].bucket for key, front in self._unreachable.items()}
        findings = find_hazards(
            request.direction,
            self._all,
            self._chosen,
            self._keepers,
            request.origin,
            in_front if request.keep_unreachable else {},
        )
        unknown = self._unknown()
        kept = [kernel for kernel, _ in self._kept.values()]
        instances = tuple(
            kernel_instance(request.direction, kernel, archs_of(kernel, self._tags), indices)
            for kernel, indices in self._kept.values()
        )
        texts = {one.file: kernel.source for one, kernel in zip(instances, kept, strict=True)}
        texts |= {source.file: text for source, text in dispatches.items()}
        return GeneratorAnswer(
            Direction(request.direction, "filtered", "", len(selector.rows), tuple(unknown)),
            instances,
            tuple(dispatches),
            texts,
            tuple(self._effect(variant) for variant in request.filters),
            tuple(sorted({name for row in selector.rows for name in row.fields})),
            unknown,
            (*findings, *self._hidden(), *self._padded()),
            tuple(self._refused),
            tuple(sorted({row.bucket for row in selector.rows})),
            tuple(self._explain()) if request.explain else (),
        )

    def _effect(self, variant: VariantFilter) -> FilterAnswer:
        rows = self._counts[id(variant)]
        blame: Sequence[str] = ()
        if not rows:
            dropped = self._request.dropped
            blame = ["the direction is dropped"] if dropped else self._selector.blame(variant)
        unserved = self._selector.hdims[variant.index][1]
        return FilterAnswer(variant.index, rows, tuple(blame), tuple(unserved))

    def _padded(self) -> Iterator[Finding]:
        """Warn of head dimensions of variants that larger kernels serve with padding."""
        for variant in self._request.filters:
            kept = self._counts[id(variant)]
            for (own, serving), dtypes in self._selector.padded(variant).items() if kept else ():
                (q, v), (larger_q, larger_v) = own, serving
                yield Finding(
                    variant.place,
                    f"hdim {q}x{v}, which kernels for {larger_q}x{larger_v} serve, padded "
                    f"({', '.join(dtypes)})",
                    "as it is; a head dimension that CK has kernels for costs less",
                    severity="warning",
                )

    def _hidden(self) -> Iterator[Finding]:
        """Warn of unreachable requested kernels, and of archs without a kernel."""
        for found in self._own:
            names = {kernel.name for row in found.rows for kernel in row.kernels}
            if found.rows and not names & self._kept.keys() and not self._request.dropped:
                yield Finding(
                    found.kernel.place,
                    f"{found.kernel.config.name}: {self._reason(found.rows[0])}",
                    "kernels that the dispatch reaches",
                    "request it without the preceding kernels, or set keep_unreachable",
                    "warning",
                )
        for arch, tag in self._tags.items() if self._own else ():
            if self._rows and not any(row.arch in (None, tag) for row in self._rows):
                yield Finding(
                    f"direction {self._request.direction}",
                    f"no requested kernel is for {arch}: its dispatch serves no problem",
                    "a kernel for each architecture",
                    f"request a kernel for {arch}, or remove {arch}",
                    "warning",
                )

    def _text(self, rows: Sequence[Row]) -> str:
        return self._dispatch.text(row.registered for row in rows)

    def _offered(self) -> list[Kernel]:
        rows = [*self._selector.rows, *self._selector.outside]
        loose = [kernel for kernel, _ in self._selector.loose().values()]
        return [*(kernel for row in rows for kernel in row.kernels), *loose]

    def _unknown(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for base in self._bases.values():
            for name, values in base.unknown.items():
                found.setdefault(name, set()).update(map(str, values))
        return {name: tuple(sorted(values)) for name, values in sorted(found.items())}

    def _dispatch_source(self, chosen: Sequence[str], folder: str) -> tuple[GeneratedSource, str]:
        """Render the dispatch for some of the archs, and prove that it calls the kept kernels."""
        reached = {self._tags[arch] for arch in chosen}
        rows = [row for row in self._rows if row.arch is None or row.arch in reached]
        text = self._text(rows)
        if folder == self._request.folders[0][1]:
            self._prove(text)
        name, direction = self._dispatch.name, self._request.direction
        return dispatch_source(direction, name, text, chosen, folder), text

    def _prove(self, dispatch: str) -> None:
        called = called_in(dispatch)
        kept = {kernel.traits for row in self._rows for kernel in row.kernels}
        if called != kept:
            raise NotUnderstoodError(
                f"the dispatch calls {len(called)} types of kernels, while {len(kept)} are kept"
            )

    def _explain(self) -> Iterator[Explanation]:
        kept, dropped = self._kept, self._request.dropped
        requested: dict[str, set[str]] = {}
        for found in self._own:
            for kernel in (kernel for row in found.rows for kernel in row.kernels):
                requested.setdefault(kernel.name, set()).add(found.kernel.place)
        reasons: dict[str, tuple[Kernel, str]] = {}
        for row in [*self._all, *self._selector.outside]:
            out = any(kernel.name not in kept for kernel in row.kernels)
            reason = self._reason(row) if out and not dropped else ""
            for kernel in row.kernels:
                # An unreachable row is a better reason than a row that no variant selects.
                if kernel.name not in reasons or row.key in self._unreachable:
                    reasons[kernel.name] = (kernel, reason)
        for name, (kernel, _) in self._selector.loose().items():
            reasons.setdefault(name, (kernel, "no entry of the dispatch calls it"))
        for name, (kernel, reason) in reasons.items():
            is_kept = name in kept
            yield Explanation(
                name,
                self._request.direction,
                kernel.role,
                archs_of(kernel, self._tags),
                dict(sorted(kernel.fields.items())),
                kept_by=tuple(sorted(kept[name][1])) if is_kept else (),
                dropped_by="" if is_kept else "the direction is dropped" if dropped else reason,
                asked_by=tuple(sorted(requested.get(name, ()))) if is_kept else (),
            )

    def _reason(self, row: Row) -> str:
        if row.key in self._replaced:
            return "a kernel of the same type in C++ is requested"
        if row.key not in self._unreachable:
            return self._selector.reason(row)
        front = self._unreachable[row.key]
        if front[0].bucket == row.bucket:
            names = ", ".join(one.main.name for one in front)
            reason = f"rows before it in the dispatch take all its problems: {names}"
        else:
            size, other = ("{}x{}".format(*one.bucket) for one in (row, front[0]))
            reason = (
                f"the dispatch tests the {other} bucket before that of {size}, and it takes all "
                "its problems"
            )
        return f"unreachable: {reason} ([build].keep_unreachable keeps it)"


def _read(request: GeneratorRequest) -> tuple[dict[int, Base], Dispatch, Recording]:
    """Return the rows of each receipt, and the dispatch and recording of the first of them."""
    receipts = {source(one.receipt, request.native) for one in request.filters}
    # Receipt 0 orders the rows of several receipts: it has nearly all rows of any of them.
    needed = sorted(receipts | {0}) if len(receipts) > 1 else sorted(receipts)
    script, scratch, direction = Path(request.script), Path(request.scratch), request.direction
    recordings = {
        receipt: record(script, direction, receipt, request.archs, scratch) for receipt in needed
    }
    dispatches = {receipt: Dispatch(seen) for receipt, seen in recordings.items()}
    dispatch, recording = dispatches[needed[0]], recordings[needed[0]]
    made = [emulated(one.receipt, request.native) for one in request.filters]
    idle = all(of and of.rules[direction] is None for of in made)
    if idle and not request.explain and not request.kernels:
        # No filter keeps a row.
        return {receipt: Base(()) for receipt in needed}, dispatch, recording
    bases = {
        receipt: read_base(direction, seen, dispatches[receipt])
        for receipt, seen in recordings.items()
    }
    return bases, dispatch, recording


def run(request: GeneratorRequest) -> GeneratorAnswer:
    """Generate one direction."""
    try:
        return _Filtered(request).answer()
    except NotUnderstoodError as error:
        return unfiltered.run(request, str(error))


def main(path: Path) -> int:
    """Answer the request at `path`; returns the exit code."""
    ignore_bytecode()
    gc.disable()  # a short life, and half a million small objects that all stay
    try:
        request = GeneratorRequest.from_json(path.read_text(encoding="utf-8"))
        try:
            path.with_name("answer").write_bytes(run(request).to_json())
        except RefusedError as refused:
            path.with_name("refused").write_text(json.dumps(vars(refused)), encoding="utf-8")
    except OSError as error:
        print(disk_error(error))
        return 1
    return 0


if __name__ == "__main__":
    prepare_generator()
    sys.exit(main(Path(sys.argv[1])))
