"""HIP libraries, programs, tests and code objects for any Bazel project, without a manifest."""

load(":hip_code_object.bzl", _hip_code_object = "hip_code_object")
load(":hip_library.bzl", _HipInfo = "HipInfo", _hip_library = "hip_library")
load(":hip_program.bzl", _hip_binary = "hip_binary", _hip_test = "hip_test")
load(":if_hip.bzl", _if_hip = "if_hip")
load(":toolchain.bzl", _hip_toolchain = "hip_toolchain")

hip_binary = _hip_binary
hip_code_object = _hip_code_object
hip_library = _hip_library
hip_test = _hip_test
hip_toolchain = _hip_toolchain
if_hip = _if_hip
HipInfo = _HipInfo
