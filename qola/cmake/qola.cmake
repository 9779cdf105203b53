# qola_bundle: takes a bundle of qola's libraries that is there, or has qola build one, when a
# project is configured (docs/guide/cmake.md); qola --cmake-dir prints where this file is.
#
#   include(<qola --cmake-dir>/qola.cmake)
#   qola_bundle(MANIFEST te.toml COMPONENTS mha_fwd mha_bwd)
#   target_link_libraries(app PRIVATE ${qola_LIBRARIES})

if(CMAKE_VERSION VERSION_LESS 3.21)
  message(FATAL_ERROR "qola.cmake needs CMake 3.21 or later; this is ${CMAKE_VERSION}")
endif()
include_guard(GLOBAL)
cmake_policy(VERSION 3.21...3.31)
include("${CMAKE_CURRENT_LIST_DIR}/qola-targets.cmake")

# _qola_fail(<title> <place> <found> <expected> <fix>)
# Ends the configuration with an error.
function(_qola_fail title place found expected fix)
  _qola_finding(text "${place}" "${found}" "${expected}" "${fix}")
  message(FATAL_ERROR "qola: ${title}\n${text}")
endfunction()

# _qola_value(<out> <name> <type> <value>)
# Sets <out> to a value in the one form that two of them are compared in.
function(_qola_value out name type value)
  if(type STREQUAL "BOOL")
    # What CMake takes for true and false, and nothing else: "disabled" is not on.
    string(TOUPPER "${value}" upper)
    if(upper MATCHES "^(1|ON|YES|TRUE|Y)$")
      set(value ON)
    elseif(upper MATCHES "^(0|OFF|NO|FALSE|N)$")
      set(value OFF)
    else()
      _qola_fail("an option is neither on nor off" "${name}" "\"${value}\""
        "1, ON, YES, TRUE or Y; 0, OFF, NO, FALSE or N; in any case"
        "-D${name}=ON or -D${name}=OFF")
    endif()
  elseif(type STREQUAL "PATH")
    get_filename_component(value "${value}" ABSOLUTE)
  endif()
  set(${out} "${value}" PARENT_SCOPE)
endfunction()

# _qola_option(<option> <type> <default> <words for the default> <help> [<alias>...])
# Makes a cache entry of an option; sets <option>_value, and <option>_source to
# words for the summary.
# A name counts as a CMake variable, else as an environment variable, and empty as not set. The
# option's own name and its aliases may not disagree.
function(_qola_option option type default words help)
  set(${option} "" CACHE ${type} "${help}")
  set(chosen "")
  foreach(name IN ITEMS ${option} ${ARGN})
    if(NOT "${${name}}" STREQUAL "")
      set(value "${${name}}")
      set(source "${name}")
      set(undo "cmake -U${name}")
    elseif(NOT "$ENV{${name}}" STREQUAL "")
      set(value "$ENV{${name}}")
      set(source "environment variable ${name}")
      set(undo "unset ${name}")
    else()
      continue()
    endif()
    _qola_value(value "${name}" ${type} "${value}")
    if(NOT name STREQUAL option)
      message(DEPRECATION "qola: ${source} is read as ${option}, which is its name here")
    endif()
    set(compared "${value}")
    if(type STREQUAL "PATH")
      get_filename_component(compared "${value}" REALPATH)
    endif()
    if(chosen STREQUAL "")
      set(chosen "${source}")
      set(chosen_value "${value}")
      set(chosen_compared "${compared}")
    elseif(NOT compared STREQUAL chosen_compared)
      _qola_fail("two names of one option disagree" "${option}"
        "${chosen}: ${chosen_value}, and ${source}: ${value}"
        "the same value under both, or one of them" "${undo}")
    endif()
  endforeach()
  if(chosen STREQUAL "")
    set(chosen "${words}")
    set(chosen_value "${default}")
  endif()
  set(${option}_value "${chosen_value}" PARENT_SCOPE)
  set(${option}_source "${chosen}" PARENT_SCOPE)
endfunction()

# _qola_other(<name> <words> [<alias>...])
# Sets <name>_value and <name>_source to what the summary says of an option that is not qola's. Its
# names may disagree, and it gets no cache entry: both are the project's affair.
function(_qola_other option words)
  set(${option}_value "" PARENT_SCOPE)
  set(${option}_source "${words}" PARENT_SCOPE)
  foreach(name IN ITEMS ${option} ${ARGN})
    if(NOT "${${name}}" STREQUAL "")
      set(${option}_value "${${name}}" PARENT_SCOPE)
      set(${option}_source "${name}; ${words}" PARENT_SCOPE)
      return()
    elseif(NOT "$ENV{${name}}" STREQUAL "")
      set(${option}_value "$ENV{${name}}" PARENT_SCOPE)
      set(${option}_source "environment variable ${name}; ${words}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# _qola_summary(<options...>)
# Says of each option what it is, and who said so.
function(_qola_summary)
  message(STATUS "qola configuration:")
  foreach(option IN LISTS ARGN)
    set(value "${${option}_value}")
    if(value STREQUAL "")
      set(value "(not set)")
    endif()
    message(STATUS "  ${option}: ${value} (${${option}_source})")
  endforeach()
endfunction()

# _qola_program(<out>)
# Sets <out> to the command that runs qola, as a list.
function(_qola_program out)
  if(NOT QOLA_PROGRAM_value STREQUAL "")
    set(${out} "${QOLA_PROGRAM_value}" PARENT_SCOPE)
    return()
  endif()
  # Names of our own: what a variable has already would be taken for found.
  find_program(_qola_found qola NO_CACHE)
  if(_qola_found)
    set(${out} "${_qola_found}" PARENT_SCOPE)
    return()
  endif()
  set(python "${Python3_EXECUTABLE}")
  if(NOT python)
    set(python "${Python_EXECUTABLE}")
  endif()
  if(NOT python)
    find_program(_qola_python NAMES python3 NO_CACHE)
    set(python "${_qola_python}")
  endif()
  if(python)
    execute_process(COMMAND "${python}" -c "import qola.cli"
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(${out} "${python};-m;qola" PARENT_SCOPE)
      return()
    endif()
  endif()
  string(CONCAT fix "pip install <a checkout or wheel of qola>, or -DQOLA_PROGRAM=<path of qola>, "
    "or name a bundle that is there: -DQOLA_BUNDLE=<directory>")
  _qola_fail("there is no qola to build a bundle with" "QOLA_PROGRAM"
    "not set, no qola on PATH, and none that Python imports (${python})" "the program qola" "${fix}")
endfunction()

# _qola_build(<output directory>)
# Runs qola build with what qola_bundle was given. Its words go where CMake's go.
function(_qola_build output)
  if(NOT arg_MANIFEST)
    _qola_fail("nothing says which libraries" "qola_bundle"
      "no MANIFEST, and no bundle is named" "a manifest to build, or a bundle"
      "qola_bundle(MANIFEST <file>), or -DQOLA_BUNDLE=<directory>")
  endif()
  get_filename_component(manifest "${arg_MANIFEST}" ABSOLUTE)
  # An edit of it has the project configured again.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${manifest}")
  _qola_program(command)
  list(APPEND command build --manifest "${manifest}" --output-dir "${output}")
  foreach(arch IN LISTS arg_ARCHS)
    list(APPEND command --arch "${arch}")
  endforeach()
  if(arg_LAZY)
    list(APPEND command --lazy)
  endif()
  if("static" IN_LIST arg_COMPONENTS)
    list(APPEND command --static)
  endif()
  if(NOT "${arg_AITER_ROOT}" STREQUAL "")
    get_filename_component(root "${arg_AITER_ROOT}" ABSOLUTE)
    list(APPEND command --aiter-root "${root}")
  endif()
  foreach(url IN LISTS arg_PREBUILT)
    list(APPEND command --prebuilt "${url}")
  endforeach()
  if(arg_PUBLIC_KEY)
    list(APPEND command --public-key "${arg_PUBLIC_KEY}")
  endif()
  list(JOIN command " " words)
  message(STATUS "qola: ${words}")
  execute_process(COMMAND ${command} RESULT_VARIABLE failed)
  if(failed)
    _qola_fail("the libraries could not be built" "${manifest}" "qola build ended with ${failed}"
      "0; what qola says is above" "${words}")
  endif()
  # A prebuilt of TransformerEngine's own has libraries and no package.
  file(GLOB libraries "${output}/lib/*libmha_fwd.so" "${output}/lib/*libmha_bwd.so")
  if(NOT libraries)
    _qola_fail("the manifest has no attention libraries" "${manifest}"
      "qola build ended well, without any in ${output}/lib"
      "a manifest with the module libmha_fwd or libmha_bwd" "qola plan ${manifest}")
  endif()
endfunction()

# _qola_plain(<library directory> <include directory>)
# Declares the targets of libraries without a package, such as those that TransformerEngine keeps.
function(_qola_plain directory include)
  set(there)
  set(reason)
  foreach(component IN ITEMS mha_fwd mha_bwd static)
    if(component STREQUAL "static")
      file(GLOB found "${directory}/libqola*.a" "${directory}/libmha.a")
      set(archive TRUE)
    else()
      file(GLOB found "${directory}/*lib${component}.so")
      set(archive FALSE)
    endif()
    list(LENGTH found count)
    if(count GREATER 1)
      list(JOIN found ", " found)
      _qola_fail("several libraries could be qola::${component}" "${directory}" "${found}" "one"
        "a directory for each namespace")
    elseif(count)
      _qola_declare("${found}" ${archive} "${include}" ${component} reason)
      list(APPEND there ${component})
    endif()
  endforeach()
  if(reason)
    message(FATAL_ERROR "qola: two bundles in one project\n${reason}")
  endif()
  foreach(component IN LISTS arg_COMPONENTS)
    if(NOT component IN_LIST there)
      _qola_join(there ${there})
      _qola_fail("a library is missing" "${directory}" "the components ${there}"
        "the component ${component} as well" "another directory, or none, to have it built")
    endif()
  endforeach()
  message(STATUS "qola: ${directory} is not a bundle: its version and archs are not known")
endfunction()

# _qola_take(<directory> <words>)
# Declares the targets of a bundle, of its lib/, or of a directory with libraries and headers; sets
# prefix to the bundle's directory. <words> says who named it.
function(_qola_take directory words)
  get_filename_component(name "${directory}" NAME)
  set(candidates "${directory}")
  if(name STREQUAL "lib")
    list(APPEND candidates "${directory}/..")
  endif()
  foreach(candidate IN LISTS candidates)
    if(EXISTS "${candidate}/lib/cmake/qola/qola-config.cmake")
      get_filename_component(found "${candidate}" ABSOLUTE)
      set(prefix "${found}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  foreach(candidate IN ITEMS "${directory}/lib" "${directory}")
    file(GLOB libraries "${candidate}/*libmha_fwd.so" "${candidate}/*libmha_bwd.so"
      "${candidate}/libqola*.a" "${candidate}/libmha.a")
    if(libraries AND EXISTS "${candidate}/../include/qola_config.h")
      get_filename_component(include "${candidate}/../include" ABSOLUTE)
      _qola_plain("${candidate}" "${include}")
      get_filename_component(found "${candidate}/.." ABSOLUTE)
      set(prefix "${found}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  string(CONCAT expected "a bundle (it has lib/cmake/qola/), its lib/, or a directory with lib/ and "
    "include/qola_config.h")
  _qola_fail("what is named is not a bundle" "${words}" "${directory}" "${expected}"
    "the directory that qola build --output-dir or qola_bundle wrote; unset it to have one built")
endfunction()

# _qola_install(<prefix>)
# Installs what programs that link the libraries need where they run, in a bundle's layout.
function(_qola_install prefix)
  set(destination "${QOLA_INSTALL_PREFIX_value}")
  if(destination STREQUAL "")
    return()
  endif()
  # Kernels may not be passed on without their licenses, be they in a library of their own or not.
  set(directories licenses)
  foreach(target IN LISTS qola_LIBRARIES)
    if(NOT target STREQUAL "qola::static")
      get_target_property(library ${target} IMPORTED_LOCATION)
      install(FILES "${library}" DESTINATION "${destination}/lib")
      # A lazy library reads ../share/qola.
      list(APPEND directories configs share/qola)
    endif()
  endforeach()
  list(REMOVE_DUPLICATES directories)
  foreach(directory IN LISTS directories)
    if(IS_DIRECTORY "${prefix}/${directory}")
      install(DIRECTORY "${prefix}/${directory}/" DESTINATION "${destination}/${directory}")
    endif()
  endforeach()
  if("share/qola" IN_LIST directories AND EXISTS "${prefix}/bin/qola-kernels")
    install(PROGRAMS "${prefix}/bin/qola-kernels" DESTINATION "${destination}/bin")
  endif()
endfunction()

# qola_bundle([MANIFEST <file>] [COMPONENTS <component>...] [OUTPUT_DIR <directory>]
#             [ARCHS <arch>...] [AITER_ROOT <directory>] [INSTALL_PREFIX <directory>] [LAZY] [STATIC]
#             [PREBUILT <url>...] [PUBLIC_KEY <key>])
# Declares qola::mha_fwd, qola::mha_bwd and qola::static, as far as they are there, for the whole
# project; sets qola_LIBRARIES to those to link, qola_INSTALL_PREFIX, and the variables of
# find_package(qola).
function(qola_bundle)
  cmake_parse_arguments(PARSE_ARGV 0 arg "LAZY;STATIC"
    "AITER_ROOT;MANIFEST;OUTPUT_DIR;INSTALL_PREFIX;PUBLIC_KEY" "COMPONENTS;ARCHS;PREBUILT")
  # A list may be empty, as a project's own is: that says nothing.
  if(arg_KEYWORDS_MISSING_VALUES)
    list(REMOVE_ITEM arg_KEYWORDS_MISSING_VALUES COMPONENTS ARCHS PREBUILT)
  endif()
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    string(CONCAT expected "AITER_ROOT, ARCHS, COMPONENTS, INSTALL_PREFIX, MANIFEST, OUTPUT_DIR, "
      "PREBUILT, PUBLIC_KEY, each with a value; LAZY, STATIC")
    _qola_fail("an argument that qola_bundle does not have" "qola_bundle"
      "${arg_UNPARSED_ARGUMENTS} ${arg_KEYWORDS_MISSING_VALUES}"
      "${expected}"
      "docs/guide/cmake.md describes them")
  endif()
  if(NOT arg_COMPONENTS)
    set(arg_COMPONENTS mha_fwd mha_bwd)
  endif()
  foreach(component IN LISTS arg_COMPONENTS)
    if(NOT component MATCHES "^(mha_fwd|mha_bwd|static)$")
      _qola_fail("a component that qola does not have" "COMPONENTS of qola_bundle" "${component}"
        "mha_fwd, mha_bwd, static" "correct the name")
    endif()
  endforeach()
  if(NOT arg_OUTPUT_DIR)
    set(arg_OUTPUT_DIR "${CMAKE_CURRENT_BINARY_DIR}/qola")
  endif()
  get_filename_component(arg_OUTPUT_DIR "${arg_OUTPUT_DIR}" ABSOLUTE
    BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  set(static OFF)
  set(static_words "default")
  if(arg_STATIC)
    set(static ON)
    set(static_words "STATIC of qola_bundle")
  endif()
  set(install_words "nothing of qola's is installed")
  if(NOT "${arg_INSTALL_PREFIX}" STREQUAL "")
    set(install_words "INSTALL_PREFIX of qola_bundle")
  endif()

  _qola_option(QOLA_BUNDLE PATH "" "to be built"
    "Directory of a bundle of qola's libraries; empty: it is built from the manifest"
    AITER_MHA_PATH NVTE_CK_FUSED_ATTN_PATH)
  _qola_option(QOLA_STATIC_LINK BOOL "${static}" "${static_words}"
    "Link qola's static library in place of the shared ones"
    NVTE_AITER_STATIC_LINK AITER_STATIC_LINK)
  _qola_option(QOLA_INSTALL_PREFIX STRING "${arg_INSTALL_PREFIX}" "${install_words}"
    "Directory below CMAKE_INSTALL_PREFIX to install qola's libraries in" AITER_MHA_INSTALL_PREFIX)
  _qola_option(QOLA_PROGRAM STRING "" "qola on PATH, or python3 -m qola"
    "The program qola, or a list: its command with arguments")
  _qola_other(AOTRITON_PATH "the project's own affair" NVTE_AOTRITON_PATH)
  _qola_other(AITER_ARCHIVE_BATCH_SIZE "without effect: an archive is made in one step")
  _qola_summary(QOLA_BUNDLE QOLA_STATIC_LINK QOLA_INSTALL_PREFIX QOLA_PROGRAM AOTRITON_PATH
    AITER_ARCHIVE_BATCH_SIZE)

  if(QOLA_STATIC_LINK_value)
    set(arg_COMPONENTS static)
  endif()
  set(before)
  foreach(component IN LISTS arg_COMPONENTS)
    if(TARGET qola::${component})
      list(APPEND before qola::${component})
    endif()
  endforeach()
  if(NOT QOLA_BUNDLE_value STREQUAL "")
    _qola_take("${QOLA_BUNDLE_value}" "${QOLA_BUNDLE_source}")
  else()
    _qola_build("${arg_OUTPUT_DIR}")
    _qola_take("${arg_OUTPUT_DIR}" "what qola build installed")
  endif()
  if(EXISTS "${prefix}/lib/cmake/qola/qola-config.cmake")
    if(arg_ARCHS)
      set(qola_REQUIRED_ARCHS "${arg_ARCHS}")
    endif()
    # An entry of an earlier configuration would go before any path.
    set(qola_DIR "${prefix}/lib/cmake/qola" CACHE PATH "Directory of qola's CMake package" FORCE)
    find_package(qola CONFIG REQUIRED COMPONENTS ${arg_COMPONENTS})
    _qola_join(archs ${qola_ARCHS})
    message(STATUS "qola: ${qola_PREFIX}: qola ${qola_VERSION}, ${archs}, "
      "AITER ${qola_AITER_VERSION}, ROCm ${qola_ROCM_VERSION}")
  endif()

  list(TRANSFORM arg_COMPONENTS PREPEND "qola::" OUTPUT_VARIABLE qola_LIBRARIES)
  foreach(target IN LISTS qola_LIBRARIES)
    # Who links what links it may be in another directory. Only who declares a target can promote it.
    if(NOT target IN_LIST before)
      set_target_properties(${target} PROPERTIES IMPORTED_GLOBAL TRUE)
    endif()
  endforeach()
  _qola_install("${prefix}")
  set(qola_PREFIX "${prefix}")
  set(qola_INSTALL_PREFIX "${QOLA_INSTALL_PREFIX_value}")
  foreach(variable IN ITEMS qola_LIBRARIES qola_PREFIX qola_INSTALL_PREFIX qola_VERSION
      qola_NAMESPACE qola_ARCHS qola_AITER_VERSION qola_ROCM_VERSION qola_LAZY)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
endfunction()
