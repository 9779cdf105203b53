"""The compiler's own words: which lines of its output are shown."""

from __future__ import annotations

from qola.build.results import first_errors

CLANG = """\
In file included from fmha.cpp:3:
fmha.cpp:12:5: warning: unused variable 'x' [-Wunused-variable]
   12 |   int x;
      |       ^
\x1b[1mfmha.hpp:7:10: \x1b[31merror: \x1b[0muse of undeclared identifier 'kBlock'
    7 |   return kBlock;
      |          ^~~~~~
fmha.hpp:3:1: note: in instantiation of 'run' requested here
    3 | run();
      | ^
fmha.hpp:9:1: error: expected ';'
    9 | }
      | ^
fmha.hpp:11:1: error: a third
1 error generated when compiling for gfx950.
failed to execute:/usr/bin/clang++ -c fmha.cpp error: x
"""

LLD = """\
ld.lld: error: undefined symbol: aiter::mha_fwd(int)
>>> referenced by entry.cpp
clang++: error: linker command failed with exit code 1
"""


def test_first_errors_of_clang() -> None:
    """Prevents: warnings, notes and hipcc's command in a summary, or the error lost among them."""
    assert first_errors(CLANG) == (
        "fmha.hpp:7:10: error: use of undeclared identifier 'kBlock'",
        "    7 |   return kBlock;",
        "      |          ^~~~~~",
        "fmha.hpp:9:1: error: expected ';'",
        "    9 | }",
        "      | ^",
    )


def test_linker() -> None:
    """Prevents: a link failure without the symbol's name."""
    assert first_errors(LLD)[0] == "ld.lld: error: undefined symbol: aiter::mha_fwd(int)"


def test_killed_tool() -> None:
    """Prevents: an empty summary for a compiler that died without an error of its own."""
    output = "".join(f"frame {n}\n" for n in range(30)) + "clang++: unable to execute: Killed\n"
    assert first_errors(output, tail=2) == ("frame 29", "clang++: unable to execute: Killed")
    assert first_errors("") == ()
