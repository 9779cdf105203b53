"""qola's version, which MODULE.bazel repeats, and the address of its documentation."""

__version__ = "0.1.0"

DOCS = "docs/"
"""Prefix of pages in messages: their path in the repository, until it has an address.

Set it to https://github.com/OWNER/qola/blob/main/docs/ when OWNER is known, and replace the copies
that CONTRIBUTING.md lists under Releasing.
"""


def docs_url(page: str) -> str:
    """Return the place of a page of the documentation, such as guide/cmake.md, for messages."""
    return f"{DOCS}{page}"
