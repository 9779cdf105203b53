# For projects that have ROCm/QoLA as a submodule and this repository in its place: what they include
# by this name, run from this checkout. Others include qola.cmake (docs/guide/cmake.md).
include_guard(GLOBAL)
get_filename_component(_qola_checkout "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set_property(GLOBAL PROPERTY _qola_checkout "${_qola_checkout}")
include("${_qola_checkout}/qola/cmake/qola.cmake")
