"""Headers that clang gets wrong when they are precompiled, and their changed copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.plan.pch_workaround import specialisations, with_constraints

HEADER = """\
struct Policy
{
    template <typename Problem_>
    struct Scheduler
    {
        // template <> void not_this<0>() {
        template <index_t Stage>
        DEVICE static constexpr void stage()
        {
        }

        template <>
        DEVICE constexpr void stage<0>()
        {
            use("template <> {");
        }

        template <>
        DEVICE constexpr void stage<1>()
        {
            if(true) { use(1); }
        }
    };
};
"""
CHANGED = """\
struct Policy
{
    template <typename Problem_>
    struct Scheduler
    {
        // template <> void not_this<0>() {
        template <index_t Stage>
        DEVICE static constexpr void stage()
        {
        }

        template <index_t Stage>
        static DEVICE constexpr void stage() requires(Stage == 0)
        {
            use("template <> {");
        }

        template <index_t Stage>
        static DEVICE constexpr void stage() requires(Stage == 1)
        {
            if(true) { use(1); }
        }
    };
};
"""


def test_specialisations_become_constrained_overloads() -> None:
    """Prevents: a backward kernel with the instructions of another stage of its scheduler."""
    assert len(specialisations(HEADER)) == 2
    assert with_constraints(HEADER) == CHANGED
    assert specialisations(CHANGED) == []


@pytest.mark.parametrize(
    "text",
    [
        "template <> void f<0>() {}\n",
        "namespace n {\n  template <> void f<0>() {}\n}\n",
        "struct S {\n  template <int I> void f();\n  template <> void f<0>() {}\n};\n",
        "template <class T>\nstruct S {\n  template <> struct U<float> { void g(); };\n};\n",
        "template <class T>\nstruct S {\n  template <> constexpr int v<float> = f();\n};\n",
        "#define M(T) \\\n  template <class U> struct S { \\\n  template <> void f<T>() {} };\n",
        "template <class T>\nvoid f() {\n  struct S { int i; };\n}\n",
        "inline namespace v1 {\nvoid f() {}\ntemplate <> void g<0>() {}\n}\n",
        'extern "C++" {\ntemplate <> void g<0>() {}\n}\n',
    ],
)
def test_what_clang_gets_right_is_left_alone(text: str) -> None:
    """Prevents: headers that are not precompiled, or are changed, without need."""
    assert specialisations(text) == []


@pytest.mark.parametrize(
    "head",
    [
        "template <class T>\nstruct S : B<T, sizeof(T)>",
        "template <class T>\nstruct alignas(16) S final",
        "template <class T>\nstruct __attribute__((packed)) S",
        "template <class T, int I = 0>\nstruct S : B<decltype(T{})>",
        'extern "C++" {\ntemplate <class T>\nstruct S',
    ],
)
def test_no_class_template_is_overlooked(head: str) -> None:
    """Prevents: a wrong kernel, without a word, for a class that is written in another way."""
    text = head + "\n{\ntemplate <int I> void f();\nMACRO template <> void f<0>() {}\n};\n"
    assert len(specialisations(text)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("void stage<0>()", "void stage<0>(int)"),
        ("template <index_t Stage>", "template <index_t Stage, int Other>"),
        ("static constexpr void stage()", "static constexpr void phase()"),
    ],
)
def test_a_form_that_is_not_known_is_not_guessed(old: str, new: str) -> None:
    """Prevents: a changed copy that means something else, or does not compile."""
    text = HEADER.replace(old, new)
    assert specialisations(text)
    assert with_constraints(text) is None


def test_composable_kernel_has_one_such_header(aiter_tree: Path) -> None:
    """Prevents: a fault of clang's that went unnoticed in a header that kernels include."""
    found = {}
    for root in aiter_tree.rglob("composable_kernel/include/ck_tile"):
        for file in root.rglob("*.hpp"):
            text = file.read_text(encoding="utf-8")
            if specialisations(text):
                found[file.name] = with_constraints(text)
    assert found.keys() == {"block_fmha_bwd_pipeline_default_policy.hpp"}
    (copy,) = found.values()
    assert copy is not None
    assert copy.count("requires(GemmStage == ") == 5
