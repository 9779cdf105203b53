"""Parsing of functions and types in C++ headers."""

from __future__ import annotations

import pytest

from qola.aiter.declarations import Function, qualified, read_scope

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


def signature(function: Function) -> str:
    """Return name, parameters and result; _ stands for no name, braces for a body."""
    parameters = "?"
    if function.parameters is not None:
        parameters = ", ".join(
            f"{parameter.name or '_'}: {parameter.type}"
            + (f" = {parameter.default}" if parameter.default else "")
            for parameter in function.parameters
        )
    return f"{function.name}({parameters}) -> {function.result}{' {}' if function.defined else ''}"


def test_functions_of_a_namespace() -> None:
    """Prevents: a wrapper with other parameters than AITER's function, or of a local function."""
    assert list(map(signature, read_scope(TEXT, "aiter").functions)) == [
        "mha_fwd(args: const mha_args&, s: const ck_tile::stream_config&, check: bool = false)"
        " -> float",
        "mha_size(_: mha_args) -> std::size_t",
        "mha_none() -> int",
        "mha_trailing(mark: char = ',', n: int = 1'000, m: int = 2'000) -> std::pair<int, float>",
        "mha_defined(a: int, b: std::map<int, int> = {}) -> float {}",
        "mha_c(_: unsigned int, n: long) -> int",
        "mha_odd(?) -> float",
        "mha_again(f: std::function<void*(int, bool)> = {}, b: int = 1 << 2) -> float",
    ]


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
