"""Parsing of functions and types in C++ headers."""

from __future__ import annotations

import pytest

from qola.aiter.declarations import Parameter, qualified, read_scope

TEXT = """\
struct outside {};
namespace other { float f(int a); }
namespace aiter {
struct mha_args { bool on = false; float f(int) const { return 1; } };
enum class kind : int { a, b };
enum order : int { first, second = int(kind::a), };
using mha_alias = fmha_args;
typedef unsigned mha_number;
template <typename T> struct of;
__attribute__((visibility("default"))) float
mha_fwd(const mha_args& args, const ck_tile::stream_config& s, bool check = false);
[[nodiscard]] std::size_t mha_size(mha_args);
extern int mha_none(void);
static float mine(int a);
inline float short_(int a) { return a; }
template <typename T> float any(T t);
float mha_deleted(int) = delete;
mha_args::mha_args(int a) : on(a) {}
int variable = f(1);
inline constexpr int kPage{16};
static const float kScale = 1.f;
int const kAfter = 3;
constexpr int kSizes[2] = {1, 2};
auto mha_trailing(char mark = ',', int n = 1'000, int m = 2'000) -> std::pair<int, float>;
namespace inner { float deep(int a); }
namespace { float hidden(int a); }
float mha_defined(int a, std::map<int, int> b = {}) { if(a) { return f(a); } return 0; }
extern "C" {
int mha_c(unsigned int, long n);
}
float mha_odd(float (*f)(int), int a[3]);
}
SOME_MACRO
namespace aiter { float mha_again(std::function<void*(int, bool)> f = {}, int b = 1 << 2); }
"""


def test_functions_of_a_namespace() -> None:
    """Prevents: a wrapper with other parameters than AITER's function, or of a local function."""
    found = {f.name: f for f in read_scope(TEXT, "aiter").functions}
    assert list(found) == [
        "mha_fwd",
        "mha_size",
        "mha_none",
        "mha_trailing",
        "mha_defined",
        "mha_c",
        "mha_odd",
        "mha_again",
    ]
    assert found["mha_fwd"].parameters == (
        Parameter("const mha_args&", "args", ""),
        Parameter("const ck_tile::stream_config&", "s", ""),
        Parameter("bool", "check", "false"),
    )
    assert found["mha_size"].result == "std::size_t"
    assert found["mha_size"].parameters == (Parameter("mha_args", "", ""),)
    assert found["mha_none"].result == "int"
    assert found["mha_none"].parameters == ()
    assert found["mha_defined"].parameters == (
        Parameter("int", "a", ""),
        Parameter("std::map<int, int>", "b", "{}"),
    )
    assert [f.name for f in found.values() if f.defined] == ["mha_defined"]
    assert found["mha_c"].parameters == (
        Parameter("unsigned int", "", ""),
        Parameter("long", "n", ""),
    )
    assert found["mha_odd"].parameters is None
    assert found["mha_trailing"].result == "std::pair<int, float>"
    assert found["mha_trailing"].parameters == (
        Parameter("char", "mark", "','"),
        Parameter("int", "n", "1'000"),
        Parameter("int", "m", "2'000"),
    )
    assert found["mha_again"].parameters == (
        Parameter("std::function<void*(int, bool)>", "f", "{}"),
        Parameter("int", "b", "1 << 2"),
    )


def test_names_of_a_namespace() -> None:
    """Prevents: a type or constant of namespace aiter is written without its namespace."""
    scope = read_scope(TEXT, "aiter")
    types = {"mha_args", "kind", "order", "mha_alias", "mha_number", "of"}
    assert scope.names == types | {"kPage", "kScale", "kAfter", "kSizes", "first", "second"}
    assert read_scope(TEXT, "").names == {"outside"}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("const args&", "const aiter::args&"),
        ("std::vector<args>", "std::vector<aiter::args>"),
        ("ck::args", "ck::args"),
        ("x.args + y->args", "x.args + y->args"),
        ('f("args", args{})', 'f("args", aiter::args{})'),
        ("'args'", "'args'"),
        ("args_of", "args_of"),
    ],
)
def test_names_are_qualified(written: str, expected: str) -> None:
    """Prevents: a public header compiles only inside namespace aiter."""
    assert qualified(written, frozenset({"args"}), "aiter::") == expected
