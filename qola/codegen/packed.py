"""The form in which the generator process answers: JSON, and the texts it speaks of behind it.

As one string each in the JSON, 30 MB of sources would cost as much to quote as to make.
"""

from __future__ import annotations

import json
from typing import Any

#: Lists of an answer whose entries have a text each.
_WITH_TEXT = ("kernels", "sources")


def pack(answer: dict[str, Any]) -> bytes:
    """Return an answer as bytes; `text` of kernels and sources stands behind the rest."""
    texts = []
    plain = dict(answer)
    for part in _WITH_TEXT:
        if part in answer:
            own = [item["text"].encode("utf-8") for item in answer[part]]
            texts += own
            plain[part] = [
                {**item, "text": len(text)} for item, text in zip(answer[part], own, strict=True)
            ]
    head = json.dumps(plain).encode("ascii")
    return b"%d\n" % len(head) + head + b"".join(texts)


def unpack(data: bytes) -> dict[str, Any]:
    """Return the answer that was packed.

    Raises:
        ValueError: the bytes are of another form, or not all of them are there.
    """
    length, _, rest = data.partition(b"\n")
    end = int(length)
    answer = json.loads(rest[:end])
    if not isinstance(answer, dict):
        raise ValueError("an answer that is no object")
    for part in _WITH_TEXT:
        for item in answer.get(part, ()):
            start, end = end, end + item["text"]
            item["text"] = rest[start:end].decode("utf-8")
    if end != len(rest):
        raise ValueError(f"{len(rest)} bytes, where {end} were written")
    return answer
