"""C++ names: which identifiers can name the namespace of a library's public functions."""

from __future__ import annotations

import re

# C++20 keywords and alternative tokens ([lex.key]).
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t
        char16_t char32_t class co_await co_return co_yield compl concept const const_cast
        consteval constexpr constinit continue decltype default delete do double dynamic_cast else
        enum explicit export extern false float for friend goto if inline int long mutable
        namespace new noexcept not not_eq nullptr operator or or_eq private protected public
        register reinterpret_cast requires return short signed sizeof static static_assert
        static_cast struct switch template this thread_local throw true try typedef typeid typename
        union unsigned using virtual void volatile wchar_t while xor xor_eq
        """,
    )
)
# Inside qola::<one of these> the headers' own mentions of the name would find the wrong one.
_SHADOWED = frozenset({"aiter", "ck", "ck_tile", "qola", "std"})
# Macros that GCC and Clang define unless a strict -std is given.
_MACROS = frozenset({"i386", "linux", "unix"})


def namespace_problem(name: str) -> str:
    """Say why `name`, an identifier by its letters, can still not be the namespace; or ""."""
    if name in _KEYWORDS:
        return f"{name} is a C++ keyword"
    if name in _SHADOWED:
        return f"qola::{name} would hide {name}:: from the headers"
    if name in _MACROS:
        return f"{name} is a macro of the compiler"
    if "__" in name or re.match(r"_[A-Z]", name):
        return f"C++ reserves {name} (double underscore, or underscore and capital)"
    return ""
