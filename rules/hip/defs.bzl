"""HIP rules of @rules_hip//hip:defs.bzl, for repositories that name only qola."""

load("@rules_hip//hip:defs.bzl", _HipInfo = "HipInfo", _hip_binary = "hip_binary", _hip_code_object = "hip_code_object", _hip_library = "hip_library", _hip_test = "hip_test", _hip_toolchain = "hip_toolchain", _if_hip = "if_hip")

hip_binary = _hip_binary
hip_code_object = _hip_code_object
hip_library = _hip_library
hip_test = _hip_test
hip_toolchain = _hip_toolchain
if_hip = _if_hip
HipInfo = _HipInfo
