"""The request to a generator process, and its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from qola.codegen.types import (
    Bucket,
    Direction,
    Explanation,
    GeneratedSource,
    KernelInstance,
)
from qola.kernel.selection import RequestedKernel, VariantFilter
from qola_base.errors import Finding
from qola_base.json_types import WrongValueError, parse_json, reader


@dataclass(frozen=True)
class GeneratorRequest:
    """A request for the kernels and the dispatch of one direction.

    Attributes:
        script: path of CK's generate.py.
        native: receipts that this CK itself knows, sorted.
        folders: for each set of archs of a library, the folder of its dispatch; the set of all
            archs comes first.
        dropped: the direction has no kernels; its dispatch returns -1.
        origin: names of the receipts for messages.
        scratch: directory for the generator's output; "" in the key of a cached answer.
    """

    script: str
    direction: str
    native: tuple[int, ...]
    archs: tuple[str, ...]
    folders: tuple[tuple[tuple[str, ...], str], ...]
    filters: tuple[VariantFilter, ...]
    kernels: tuple[RequestedKernel, ...]
    dropped: bool
    explain: bool
    keep_unreachable: bool
    origin: str
    scratch: str = ""

    def to_json(self) -> str:
        """Return the request as JSON, the same text for equal requests."""
        return json.dumps(self, default=vars, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> GeneratorRequest:
        """Return the request that `to_json` wrote."""
        data = parse_json(text)
        # Paths may have bytes that are invalid in the locale's encoding, which `reader` refuses.
        request: GeneratorRequest = reader(GeneratorRequest)({**data, "script": "", "scratch": ""})
        return replace(request, script=data["script"], scratch=data["scratch"])


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
        fields: names of the fields that the dispatch entries have, sorted.
        unknown: values of each field that no variant can name.
        texts: contents of the files of kernels and sources, by their path.
        findings: hazards of the dispatch, and warnings.
        refused: requested kernels that cannot be generated.
        filters: the effect of each filter of the request.
        buckets: (hdim_q, hdim_v) of the dispatch, sorted.
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

    def to_json(self) -> bytes:
        """Return the answer as JSON."""
        return json.dumps(self, default=vars).encode("ascii")

    @staticmethod
    def from_json(data: bytes) -> GeneratorAnswer:
        """Return the answer that `to_json` wrote; raises WrongValueError for other bytes."""
        value = parse_json(data)
        if type(value) is not dict:
            raise WrongValueError(f": {repr(value)[:80]}, expected an object")
        # Sources may have characters that `reader` refuses.
        texts = value.get("texts")
        if type(texts) is not dict or any(type(text) is not str for text in texts.values()):
            raise WrongValueError(f".texts: {repr(texts)[:80]}, expected an object of strings")
        answer: GeneratorAnswer = reader(GeneratorAnswer)({**value, "texts": {}})
        return replace(answer, texts=texts)
