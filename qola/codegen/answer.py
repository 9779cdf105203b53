"""The answer of a generator process: kernels, dispatch sources and their texts, for one direction.

A packed answer is JSON followed by the texts. Quoting 30 MB of sources as JSON strings would cost
as much as generating them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from qola.codegen.types import Bucket, Direction, Explanation, GeneratedSource, KernelInstance
from qola.errors import Finding
from qola.json_types import WrongValueError, parse_json, reader


@dataclass(frozen=True)
class FilterAnswer:
    """The effect of one VariantFilter.

    Attributes:
        index: `VariantFilter.index`.
        rows: number of dispatch entries that the filter keeps.
        blame: why no entry is kept, dimension by dimension; () if some are.
        unserved: requested (hdim_q, hdim_v) that no kernel serves.
    """

    index: int
    rows: int
    blame: tuple[str, ...] = ()
    unserved: tuple[Bucket, ...] = ()


@dataclass(frozen=True)
class GeneratorAnswer:
    """Everything that was generated for one direction.

    Attributes:
        direction: its level, see `Direction`.
        fields: names of the fields that the dispatch entries have, sorted.
        unknown: values of each field that no variant can name.
        texts: contents of the files of kernels and sources, by their path.
        findings: hazards of the dispatch, and warnings.
        refused: requested kernels that cannot be generated.
        filters: the effect of each filter of the request.
        buckets: (hdim_q, hdim_v) of the dispatch, sorted.
        explanations: one for each kernel of the receipts; () unless requested.
    """

    direction: Direction
    kernels: tuple[KernelInstance, ...]
    sources: tuple[GeneratedSource, ...]
    texts: Mapping[str, str]
    filters: tuple[FilterAnswer, ...]
    fields: tuple[str, ...] = ()
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    explanations: tuple[Explanation, ...] = ()

    def filter(self, index: int) -> FilterAnswer:
        """Return the effect of the filter with this index."""
        return next(one for one in self.filters if one.index == index)

    def pack(self) -> bytes:
        """Return the answer as bytes."""
        texts = {path: text.encode("utf-8") for path, text in self.texts.items()}
        lengths = {path: len(text) for path, text in texts.items()}
        head = json.dumps({**vars(self), "texts": lengths}, default=vars).encode("ascii")
        return b"%d\n" % len(head) + head + b"".join(texts.values())

    @staticmethod
    def unpack(data: bytes) -> GeneratorAnswer:
        """Return the answer that was packed.

        Raises:
            WrongValueError: the bytes have another form, or some are missing.
        """
        length, _, rest = data.partition(b"\n")
        if not length.isdigit():
            raise WrongValueError(": an answer without the length of its JSON")
        end = int(length)
        head = parse_json(rest[:end])
        texts = {}
        for path, size in _LENGTHS(head.get("texts")).items():
            start, end = end, end + size
            texts[path] = rest[start:end].decode("utf-8")
        if end != len(rest):
            raise WrongValueError(f": {len(rest)} bytes, expected {end}")
        answer: GeneratorAnswer = reader(GeneratorAnswer)({**head, "texts": texts})
        return answer


_LENGTHS = reader(Mapping[str, int])
