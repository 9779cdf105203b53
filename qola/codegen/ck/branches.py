"""The branches of a dispatch, read from its C++: conditions within each other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from qola.codegen.ck.link import NotUnderstoodError, compiled_part

_START = re.compile(r"\bif\s*\(\s*(?:device_name|t\.data_type|t\.hdim_q)\b")
#: Begins with letters, which are found sooner than a border of words.
_IF = re.compile(r"if(?<!\wif)\s*(?:constexpr\s*)?\(")
_ELSE = re.compile(r"\belse\s*$")


@dataclass
class Block:
    """What stands in braces: its own text, and chains of if and else with blocks of theirs."""

    text: str = ""
    chains: list[list[tuple[str, Block]]] = field(default_factory=list)


def read_branches(text: str) -> Block:
    """Return the branches of a dispatch.

    Raises:
        NotUnderstoodError: it asks neither a device nor a data type, or is of another form.
    """
    text = compiled_part(text)
    start = _START.search(text)
    if start is None:
        raise NotUnderstoodError("a dispatch that asks neither a device nor a data type")
    return _block(text, start.start())[0]


def _block(text: str, start: int) -> tuple[Block, int]:
    """Return the block that starts somewhere, and where its brace closes."""
    found = Block()
    own, place = [], start
    while True:
        opens, end = text.find("{", place), text.find("}", place)
        end = len(text) if end < 0 else end
        if opens < 0 or end < opens:
            own.append(text[place:end])
            if match := _IF.search(own[-1]):
                raise NotUnderstoodError(f"{own[-1][match.start() :][:200]} without braces")
            found.text = "".join(own)
            return found, end
        head = text[place:opens]
        inner, place = _block(text, opens + 1)
        place += 1
        before, other, condition = _split(head)
        if condition is None:  # an initializer or a lambda
            own.append(f"{before}{{{inner.text}}}")
            continue
        own.append(before)
        if not other:
            found.chains.append([(condition, inner)])
        elif found.chains:
            found.chains[-1].append((condition, inner))
        else:
            raise NotUnderstoodError("an else without its if")


def _split(head: str) -> tuple[str, bool, str | None]:
    """Return what stands before a brace: text, whether there is an else, and the condition."""
    condition = None
    if match := _IF.search(head):
        condition = head[match.end() :].rstrip()
        if not condition.endswith(")") or ";" in condition:
            raise NotUnderstoodError(f"if({condition.strip()[:200]} without braces")
        condition, head = condition[:-1], head[: match.start()]
    if match := _ELSE.search(head):
        return head[: match.start()], True, condition or "true"
    return head, False, condition
