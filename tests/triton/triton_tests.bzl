"""Analysis tests of qola_triton_kernel: which compiles it stands for, and what each of them is told."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("//rules:defs.bzl", "QolaTritonInfo", "qola_triton_kernel")
load("//tests/starlark:refusal_tests.bzl", "refused_test")

_NAMES = [
    "scale-BLOCK_256-dtype_{}-{}".format(dtype, arch)
    for dtype in ["bf16", "fp16"]
    for arch in ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]
]

def _matrix_test_impl(ctx):
    """Prevents: choices that are not compiled, a compile of two kernels, or one that another source changes."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    names = [one.name for one in target[QolaTritonInfo].compiled.to_list()]
    asserts.equals(env, sorted(_NAMES), sorted(names))
    actions = [action for action in target.actions if action.mnemonic == "QolaTriton"]
    asserts.equals(env, len(_NAMES), len(actions))
    for action in actions:
        ends = sorted([file.extension for file in action.outputs.to_list()])
        asserts.equals(env, ["hsaco", "json", "s"], ends)
        sources = [file.basename for file in action.inputs.to_list() if file.owner.package.endswith("tests/triton")]
        asserts.equals(env, ["scale.py"], sources)
        asserts.true(env, "--timeout" in action.argv)
    return analysistest.end(env)

_matrix_test = analysistest.make(_matrix_test_impl)

def triton_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    _matrix_test(name = "matrix_test", size = "small", target_under_test = ":scale")
    tests = ["matrix_test"]

    # Prevents: a kernel for an arch that was misspelt, found when Triton compiles it; one kernel compiled twice.
    for wrong, archs, choices, part in [
        ("of_no_arch", ["gfx9420"], {}, "found:    gfx9420"),
        ("twice", ["gfx942"], {"BLOCK": ["1", "1"]}, "values, each once"),
    ]:
        qola_triton_kernel(name = wrong, src = "kernels/scale.py", archs = archs, choices = choices, tags = ["manual"])
        refused_test(name = wrong + "_test", size = "small", parts = [part], target_under_test = ":" + wrong)
        tests.append(wrong + "_test")
    native.test_suite(name = name, tests = tests)
