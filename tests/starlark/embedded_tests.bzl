"""Analysis tests of embedded_code_objects."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load(":actions.bzl", "action_of", "has_all")

def _host_only_test_impl(ctx):
    """Prevents: data parsed as HIP once per arch, or with a path of this machine in the object."""
    env = analysistest.begin(ctx)
    argv = action_of(env, "QolaAssemble").argv
    has_all(env, argv, ["-fPIC", "-ffile-compilation-dir=."])
    for flag in argv:
        hip = flag in ["-x", "hip"] or flag.startswith("--offload")
        asserts.false(env, hip or flag.startswith("/") and flag != argv[0], flag)
    return analysistest.end(env)

def _inputs_test_impl(ctx):
    """Prevents: code objects that no cache key holds and no sandbox or remote worker has."""
    env = analysistest.begin(ctx)
    names = [f.basename for f in action_of(env, "QolaAssemble").inputs.to_list()]
    has_all(env, names, ["0.co", "1.co", "embedded.s", "clang++"])
    names = [f.basename for f in action_of(env, "QolaCompress").inputs.to_list()]
    has_all(env, names, ["one.co", "two.co", "clang-offload-bundler", "llvm-objcopy"])
    asserts.equals(env, "2", action_of(env, "QolaCompress").env.get("COMPRESSED_BUNDLE_FORMAT_VERSION"), "HIP before ROCm 7 cannot read it")
    return analysistest.end(env)

def _table_lines(env):
    """Returns the lines of the table's source."""
    (source,) = [
        action.content
        for action in analysistest.target_actions(env)
        if action.mnemonic == "FileWrite" and "qola_asm_table" in action.content
    ]
    return [line.strip() for line in source.split("\n")]

def _source_test_impl(ctx):
    """Prevents: a table out of order, which a binary search misses, or an absolute path."""
    env = analysistest.begin(ctx)
    lines = _table_lines(env)
    asserts.equals(env, ['.incbin "0.co"', '.incbin "1.co"'], [line for line in lines if line.startswith(".incbin")])
    asserts.equals(env, ["two.co", "one.co"], [
        word.rpartition("/")[2]
        for word in action_of(env, "QolaCompress").argv
        if "/testdata/" in word
    ])
    asserts.equals(env, [
        '.asciz "hsa/gfx942/b.co"',
        '.asciz "hsa/gfx950/a.co"',
    ], [line for line in lines if line.startswith(".asciz")])
    return analysistest.end(env)

def _uncompressed_test_impl(ctx):
    """Prevents: compressed data without --@qola//:compress, or code that HIP cannot use in place."""
    env = analysistest.begin(ctx)
    lines = _table_lines(env)
    asserts.equals(env, [
        '.incbin "tests/starlark/testdata/two.co"',
        '.incbin "tests/starlark/testdata/one.co"',
    ], [line for line in lines if line.startswith(".incbin")])
    asserts.equals(env, 2, len([line for line in lines if line == ".p2align 12"]))
    return analysistest.end(env)

def _same_key_test_impl(ctx):
    """Prevents: one of two files that have one key, embedded by chance."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "two code objects with the key hsa/gfx942/b.co")
    return analysistest.end(env)

# The kernel transition's platform: elsewhere the target is incompatible.
_ROCM = {"//command_line_option:platforms": str(Label("@rules_hip//rocm:linux_x86_64"))}

_host_only_test = analysistest.make(_host_only_test_impl, config_settings = _ROCM)
_inputs_test = analysistest.make(_inputs_test_impl, config_settings = _ROCM)
_source_test = analysistest.make(_source_test_impl, config_settings = _ROCM)
_uncompressed_test = analysistest.make(_uncompressed_test_impl, config_settings = _ROCM | {str(Label("//:compress")): False})
_same_key_test = analysistest.make(_same_key_test_impl, config_settings = _ROCM, expect_failure = True)

def embedded_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    tests = {
        "embedded_host_only_test": (_host_only_test, ":embedded"),
        "embedded_inputs_test": (_inputs_test, ":embedded"),
        "embedded_same_key_test": (_same_key_test, ":embedded_twice"),
        "embedded_source_test": (_source_test, ":embedded"),
        "embedded_uncompressed_test": (_uncompressed_test, ":embedded"),
    }
    for test, (rule, target) in tests.items():
        rule(name = test, size = "small", target_under_test = target)
    native.test_suite(name = name, tests = tests.keys())
