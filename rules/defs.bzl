"""qola's public rules and macros.

A user's BUILD file needs `qola_library`, `qola_static`, `qola_bundle` and
`qola_wheel` to pass libraries on, and `kernel_pack` for kernels that lazy
libraries load. The others are what a generated repository calls; they are
public, so that such a repository can be read.
"""

load("//rules/private:bundle_files.bzl", _bundle_files = "bundle_files")
load("//rules/private:embedded_code_objects.bzl", _embedded_code_objects = "embedded_code_objects")
load("//rules/private:header_set.bzl", _header_set = "header_set")
load("//rules/private:kernel_instances.bzl", _kernel_instances = "kernel_instances")
load("//rules/private:kernel_pack.bzl", _kernel_pack = "kernel_pack")
load("//rules/private:module_library.bzl", _module_library = "module_library")
load("//rules/private:prebuilt_library.bzl", _prebuilt_library = "prebuilt_library")
load("//rules/private:providers.bzl", _QolaLibraryInfo = "QolaLibraryInfo")
load("//rules/private:public_headers.bzl", _public_headers = "public_headers")
load("//rules/private:python_module.bzl", _python_module = "python_module")
load("//rules/private:qola_bundle.bzl", _qola_bundle = "qola_bundle")
load("//rules/private:qola_library.bzl", _qola_library = "qola_library")
load("//rules/private:qola_static.bzl", _qola_static = "qola_static")
load("//rules/private:qola_wheel.bzl", _qola_wheel = "qola_wheel")

kernel_pack = _kernel_pack
qola_bundle = _qola_bundle
qola_library = _qola_library
qola_static = _qola_static
qola_wheel = _qola_wheel
QolaLibraryInfo = _QolaLibraryInfo

bundle_files = _bundle_files
embedded_code_objects = _embedded_code_objects
header_set = _header_set
kernel_instances = _kernel_instances
module_library = _module_library
prebuilt_library = _prebuilt_library
public_headers = _public_headers
python_module = _python_module
