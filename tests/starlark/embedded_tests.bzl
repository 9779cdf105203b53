"""Analysis tests of embedded_code_objects."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")

def _compile(env):
    found = [a for a in analysistest.target_actions(env) if a.mnemonic == "CppCompile"]
    asserts.equals(env, 1, len(found), "assembler actions")
    return found[0]

def _host_only_test_impl(ctx):
    """Prevents: data parsed as HIP once per arch, or with a path of this machine in the object."""
    env = analysistest.begin(ctx)
    argv = _compile(env).argv
    for flag in ["-fPIC", "-ffile-compilation-dir=."]:
        asserts.true(env, flag in argv, "{} is missing in {}".format(flag, " ".join(argv)))
    for flag in argv:
        hip = flag in ["-x", "hip"] or flag.startswith("--offload")
        asserts.false(env, hip or flag.startswith("/") and flag != argv[0], flag)
    return analysistest.end(env)

def _inputs_test_impl(ctx):
    """Prevents: code objects that no cache key holds and no sandbox or remote worker has."""
    env = analysistest.begin(ctx)
    action = _compile(env)
    names = [f.basename for f in action.inputs.to_list()]
    for name in ["one.co", "two.co", "embedded.s", "clang++"]:
        asserts.true(env, name in names, "{} is not an input".format(name))
    return analysistest.end(env)

def _source_test_impl(ctx):
    """Prevents: a table out of order, which a binary search misses, or an absolute path."""
    env = analysistest.begin(ctx)
    (source,) = [
        action.content
        for action in analysistest.target_actions(env)
        if action.mnemonic == "FileWrite" and "qola_asm_table" in action.content
    ]
    lines = [line.strip() for line in source.split("\n")]
    asserts.equals(env, [
        '.incbin "tests/starlark/testdata/two.co"',
        '.incbin "tests/starlark/testdata/one.co"',
    ], [line for line in lines if line.startswith(".incbin")])
    asserts.equals(env, [
        '.asciz "hsa/gfx942/b.co"',
        '.asciz "hsa/gfx950/a.co"',
    ], [line for line in lines if line.startswith(".asciz")])
    asserts.equals(env, 2, len([line for line in lines if line == ".p2align 12"]))
    return analysistest.end(env)

def _same_key_test_impl(ctx):
    """Prevents: one of two files that have one key, embedded by chance."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "two code objects with the key hsa/gfx942/b.co")
    return analysistest.end(env)

# The kernel transition's platform: elsewhere the target is incompatible.
_ROCM = {"//command_line_option:platforms": str(Label("//rules/rocm:linux_x86_64"))}

_host_only_test = analysistest.make(_host_only_test_impl, config_settings = _ROCM)
_inputs_test = analysistest.make(_inputs_test_impl, config_settings = _ROCM)
_source_test = analysistest.make(_source_test_impl, config_settings = _ROCM)
_same_key_test = analysistest.make(_same_key_test_impl, config_settings = _ROCM, expect_failure = True)

def embedded_test_suite(name, target, same_key):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
      target: an embedded_code_objects of testdata/one.co and two.co.
      same_key: one that gives two files one key.
    """
    tests = {
        "embedded_host_only_test": _host_only_test,
        "embedded_inputs_test": _inputs_test,
        "embedded_source_test": _source_test,
    }
    for test, rule in tests.items():
        rule(name = test, size = "small", target_under_test = target)
    _same_key_test(name = "embedded_same_key_test", size = "small", target_under_test = same_key)
    native.test_suite(name = name, tests = tests.keys() + ["embedded_same_key_test"])
