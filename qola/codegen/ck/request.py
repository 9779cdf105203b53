"""The request to a generator process: what to generate for one direction."""

from __future__ import annotations

import json
from dataclasses import dataclass

from qola.codegen.ck.predicates import VariantFilter
from qola.codegen.types import RequestedKernel
from qola.json_types import parse_json, reader


@dataclass(frozen=True)
class GeneratorRequest:
    """What to generate for one direction.

    Attributes:
        script: path of CK's generate.py.
        native: receipts that this CK knows itself, sorted.
        folders: for each set of archs that a library may be restricted to, the folder of its
            dispatch; the set of all archs comes first.
        kernels: kernels that the manifest names one by one.
        dropped: the direction has no kernels; its dispatch returns -1.
        explain: explain for each kernel why it is kept or dropped.
        keep_unreachable: keep kernels that the dispatch cannot reach.
        origin: names the receipts in messages.
        scratch: directory for the generator's output; set for one run, not part of the question.
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
        """Return the request that `to_json` wrote.

        Raises:
            WrongValueError: the text is not such a request.
        """
        request: GeneratorRequest = reader(GeneratorRequest)(parse_json(text))
        return request
