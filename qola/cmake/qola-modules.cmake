# ROCm/QoLA's functions, by its names, arguments and results: qola_checkout_aiter makes an AITER tree,
# qola_build_modules builds a group of modules from one, qola_add_modules does both. Read by qola.cmake
# (docs/guide/cmake.md#rocmqolas-functions).

# _qola_needed(<function> <known> <argument>...)
# Ends the configuration where an argument is missing, or one is given that the function does not have.
function(_qola_needed function known)
  if(arg_UNPARSED_ARGUMENTS)
    _qola_fail("an argument that ${function} does not have" "${function}"
      "${arg_UNPARSED_ARGUMENTS}" "${known}" "docs/guide/cmake.md describes them")
  endif()
  foreach(name IN LISTS ARGN)
    if("${arg_${name}}" STREQUAL "")
      _qola_fail("an argument of ${function} is missing" "${function}" "no ${name}" "${known}"
        "docs/guide/cmake.md describes them")
    endif()
  endforeach()
endfunction()

# _qola_path(<out> <path> <base>)
# Sets <out> to an absolute path; empty stays empty.
function(_qola_path out path base)
  if(NOT path STREQUAL "")
    get_filename_component(path "${path}" ABSOLUTE BASE_DIR "${base}")
  endif()
  set(${out} "${path}" PARENT_SCOPE)
endfunction()

# _qola_run(<title> <place> <word>...)
# Runs qola with the words, and ends the configuration with an error where it ends with one.
function(_qola_run title place)
  _qola_option(QOLA_PROGRAM STRING "" "" "The program qola, or a list: its command with arguments")
  _qola_program(command)
  list(APPEND command ${ARGN})
  list(JOIN command " " words)
  message(STATUS "qola: ${words}")
  execute_process(COMMAND ${command} RESULT_VARIABLE failed)
  if(failed)
    list(GET ARGN 0 name)
    _qola_fail("${title}" "${place}" "qola ${name} ended with ${failed}"
      "0; what qola says is above" "${words}")
  endif()
endfunction()

# _qola_given_tree(<out>)
# Sets <out> to the AITER tree that the environment names, else to nothing.
function(_qola_given_tree out)
  set(chosen "")
  foreach(name IN ITEMS QOLA_AITER_SOURCE_DIR NVTE_AITER_SOURCE_DIR)
    _qola_path(tree "$ENV{${name}}" "${CMAKE_CURRENT_SOURCE_DIR}")
    if(tree STREQUAL "")
      continue()
    elseif(NOT chosen STREQUAL "" AND NOT tree STREQUAL chosen)
      _qola_fail("two names of one option disagree" "QOLA_AITER_SOURCE_DIR"
        "${chosen}, and ${name}: ${tree}" "the same tree under both, or one of them"
        "unset ${name}")
    elseif(chosen STREQUAL "")
      message(STATUS "qola: AITER is ${tree} (environment variable ${name}); nothing is checked out")
      set(chosen "${tree}")
    endif()
  endforeach()
  set(${out} "${chosen}" PARENT_SCOPE)
endfunction()

# _qola_sources(<out> <tree> <place>)
# Sets <out> to the directory of a tree that has AITER's sources: itself, and in a wheel one below.
function(_qola_sources out tree place)
  foreach(directory IN ITEMS "${tree}" "${tree}/aiter_meta")
    if(IS_DIRECTORY "${directory}/csrc/include")
      set(${out} "${directory}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  _qola_fail("there are no sources of AITER" "${place}" "${tree}, without csrc/include"
    "a tree as qola checkout makes it, or a checkout of git's"
    "qola_checkout_aiter makes one; QOLA_AITER_SOURCE_DIR=<directory> names one that is there")
endfunction()

# _qola_given_libraries(<out> <group>)
# Sets <out> to the directory of libraries that the environment names for a group, else to nothing.
function(_qola_given_libraries out group)
  string(TOUPPER "${group}" name)
  string(PREPEND name QOLA_PREBUILT_DIR_)
  _qola_path(directory "$ENV{${name}}" "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT directory STREQUAL "")
    message(STATUS "qola: group ${group} is ${directory} (environment variable ${name})")
  endif()
  set(${out} "${directory}" PARENT_SCOPE)
endfunction()

# qola_checkout_aiter(MANIFEST <file> AITER_DIR|DEFAULT_DIR <directory> [GROUPS <group>...]
#                     [OUT_DIR <variable>])
# Makes the AITER tree that a manifest names, in a directory, unless QOLA_AITER_SOURCE_DIR in the
# environment names one; sets the variable to it. Groups have to be the manifest's.
function(qola_checkout_aiter)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "MANIFEST;AITER_DIR;DEFAULT_DIR;OUT_DIR" "GROUPS")
  if("${arg_AITER_DIR}" STREQUAL "")
    set(arg_AITER_DIR "${arg_DEFAULT_DIR}")
  endif()
  _qola_needed(qola_checkout_aiter
    "MANIFEST, AITER_DIR or DEFAULT_DIR; perhaps GROUPS, OUT_DIR" MANIFEST AITER_DIR)
  _qola_path(manifest "${arg_MANIFEST}" "${CMAKE_CURRENT_SOURCE_DIR}")
  # An edit of it has the project configured again.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${manifest}")
  _qola_given_tree(tree)
  if(tree STREQUAL "")
    _qola_path(tree "${arg_AITER_DIR}" "${CMAKE_CURRENT_BINARY_DIR}")
    set(words checkout --manifest "${manifest}" --aiter-root "${tree}")
    foreach(group IN LISTS arg_GROUPS)
      list(APPEND words --group "${group}")
    endforeach()
    # Directories of one project that ask for the same are answered once.
    get_property(done GLOBAL PROPERTY _qola_checked_out)
    list(JOIN words " " asked)
    if(NOT asked IN_LIST done)
      _qola_run("no AITER" "${manifest}" ${words})
      set_property(GLOBAL APPEND PROPERTY _qola_checked_out "${asked}")
    endif()
  endif()
  _qola_sources(sources "${tree}" "qola_checkout_aiter")
  if(NOT "${arg_OUT_DIR}" STREQUAL "")
    set(${arg_OUT_DIR} "${sources}" PARENT_SCOPE)
  endif()
endfunction()

# _qola_set_results(<result>...)
# Sets the variable that OUT_<RESULT> names, in the scope of the function's caller, to the variable <result>.
macro(_qola_set_results)
  foreach(result IN ITEMS ${ARGN})
    string(TOUPPER "OUT_${result}" name)
    if(NOT "${arg_${name}}" STREQUAL "")
      set(${arg_${name}} "${${result}}" PARENT_SCOPE)
    endif()
  endforeach()
endmacro()

# qola_build_modules(GROUP <group> BUILD_DIR <directory> MANIFEST <file> AITER_DIR <directory>
#                    [ARCHS <arch>...] [LIBS <file>...] [OUT_INCLUDE_DIR <variable>]
#                    [OUT_LIB_DIR <variable>] [OUT_LIBS <variable>] [OUT_CONFIG_DIR <variable>])
# Builds a manifest's modules of one group from an AITER tree, unless QOLA_PREBUILT_DIR_<GROUP> in the
# environment names a directory with lib/ and include/, which needs neither manifest nor tree. Sets
# the variables to directories, and to the file names of the libraries.
function(qola_build_modules)
  cmake_parse_arguments(PARSE_ARGV 0 arg ""
    "GROUP;MANIFEST;BUILD_DIR;AITER_DIR;OUT_INCLUDE_DIR;OUT_LIB_DIR;OUT_LIBS;OUT_CONFIG_DIR"
    "ARCHS;LIBS")
  string(CONCAT known "GROUP, BUILD_DIR, MANIFEST, AITER_DIR; perhaps ARCHS, LIBS, "
    "OUT_INCLUDE_DIR, OUT_LIB_DIR, OUT_LIBS, OUT_CONFIG_DIR")
  _qola_needed(qola_build_modules "${known}" GROUP BUILD_DIR)
  _qola_given_libraries(directory "${arg_GROUP}")
  if(directory STREQUAL "")
    _qola_needed(qola_build_modules "${known}" MANIFEST AITER_DIR)
    _qola_path(directory "${arg_BUILD_DIR}" "${CMAKE_CURRENT_BINARY_DIR}")
    _qola_build_group("${directory}")
  endif()
  if(NOT EXISTS "${directory}/include/qola_config.h")
    _qola_fail("there are no headers" "group ${arg_GROUP}" "${directory}/include, without qola_config.h"
      "lib/ and include/ as qola build makes them" "another directory, or none, to have it built")
  endif()
  set(libraries "${arg_LIBS}")
  if(libraries STREQUAL "")
    file(GLOB libraries RELATIVE "${directory}/lib" "${directory}/lib/*.so")
  endif()
  foreach(library IN LISTS libraries)
    if(NOT EXISTS "${directory}/lib/${library}")
      _qola_fail("a library is missing" "group ${arg_GROUP}" "no ${library} in ${directory}/lib"
        "each of LIBS" "correct the name")
    endif()
  endforeach()
  if(NOT libraries)
    _qola_fail("there are no libraries" "group ${arg_GROUP}" "no *.so in ${directory}/lib"
      "the group's libraries" "another directory, or none, to have it built")
  endif()
  set(include_dir "${directory}/include")
  set(lib_dir "${directory}/lib")
  set(libs "${libraries}")
  set(config_dir "${directory}/configs")
  if(NOT EXISTS "${config_dir}")
    # No module has tuning tables, but users of ROCm/QoLA install the directory. A given one may be read-only.
    _qola_path(config_dir "${arg_BUILD_DIR}/configs" "${CMAKE_CURRENT_BINARY_DIR}")
    file(MAKE_DIRECTORY "${config_dir}")
  endif()
  _qola_set_results(include_dir lib_dir libs config_dir)
endfunction()

# _qola_build_group(<output directory>)
# Runs qola build with what qola_build_modules was given, from the tree as it is.
function(_qola_build_group output)
  _qola_path(manifest "${arg_MANIFEST}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${manifest}")
  _qola_path(tree "${arg_AITER_DIR}" "${CMAKE_CURRENT_BINARY_DIR}")
  # What qola_checkout_aiter says of a wheel is a directory in it.
  get_filename_component(name "${tree}" NAME)
  get_filename_component(above "${tree}" DIRECTORY)
  if(name STREQUAL "aiter_meta" AND IS_DIRECTORY "${above}/aiter")
    set(tree "${above}")
  endif()
  _qola_sources(sources "${tree}" "AITER_DIR of qola_build_modules")
  set(words build --manifest "${manifest}" --output-dir "${output}" --aiter-root "${tree}"
    --skip-checkout --group "${arg_GROUP}")
  foreach(arch IN LISTS arg_ARCHS)
    list(APPEND words --arch "${arch}")
  endforeach()
  _qola_run("the libraries could not be built" "${manifest}" ${words})
endfunction()

# qola_add_modules(<arguments of qola_build_modules> [OUT_AITER_DIR <variable>])
# Checks AITER out into third_party/aiter in BUILD_DIR, unless AITER_DIR says where it is, and builds.
# A group that the environment names a directory for needs no AITER.
function(qola_add_modules)
  cmake_parse_arguments(PARSE_ARGV 0 arg ""
    "GROUP;MANIFEST;BUILD_DIR;AITER_DIR;OUT_INCLUDE_DIR;OUT_LIB_DIR;OUT_LIBS;OUT_CONFIG_DIR;OUT_AITER_DIR"
    "ARCHS;LIBS")
  string(CONCAT known "GROUP, MANIFEST, BUILD_DIR; perhaps AITER_DIR, ARCHS, LIBS, OUT_INCLUDE_DIR, "
    "OUT_LIB_DIR, OUT_LIBS, OUT_CONFIG_DIR, OUT_AITER_DIR")
  _qola_needed(qola_add_modules "${known}" GROUP MANIFEST BUILD_DIR)
  # In small letters: a variable named as an argument would be taken for one.
  set(aiter_dir "${arg_AITER_DIR}")
  _qola_given_libraries(given "${arg_GROUP}")
  if(given STREQUAL "" AND aiter_dir STREQUAL "")
    qola_checkout_aiter(MANIFEST "${arg_MANIFEST}" GROUPS "${arg_GROUP}"
      AITER_DIR "${arg_BUILD_DIR}/third_party/aiter" OUT_DIR aiter_dir)
  endif()
  qola_build_modules(GROUP "${arg_GROUP}" MANIFEST "${arg_MANIFEST}" BUILD_DIR "${arg_BUILD_DIR}"
    AITER_DIR "${aiter_dir}" ARCHS ${arg_ARCHS} LIBS ${arg_LIBS} OUT_INCLUDE_DIR include_dir
    OUT_LIB_DIR lib_dir OUT_LIBS libs OUT_CONFIG_DIR config_dir)
  _qola_set_results(include_dir lib_dir libs config_dir aiter_dir)
endfunction()
