# Declares the targets of a directory of qola's libraries. Read by qola-config.cmake, with which it
# lies in a bundle, and by qola.cmake for directories that are no bundle.

# _qola_finding(<out> <place> <found> <expected> <fix>)
# Sets <out> to the text of an error in the form that all of qola's have.
function(_qola_finding out place found expected fix)
  string(CONCAT text
    "  place:    ${place}\n"
    "  found:    ${found}\n"
    "  expected: ${expected}\n"
    "  fix:      ${fix}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# _qola_join(<out> <items...>)
# Sets <out> to the items with ", " between them, or to "none".
function(_qola_join out)
  list(JOIN ARGN ", " text)
  if(text STREQUAL "")
    set(text "none")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# _qola_declare(<library> <static> <include directory> <component> <reason>)
# Declares qola::<component> for the library, unless it is declared. <static> is TRUE for an archive.
# Sets <reason> where a target of that name is another library: two bundles in one project.
function(_qola_declare library static include component reason)
  if(TARGET qola::${component})
    get_target_property(other qola::${component} IMPORTED_LOCATION)
    if(NOT other STREQUAL library)
      _qola_finding(text "the target qola::${component}" "${other}, and ${library}"
        "one bundle in a directory of a project and those below it"
        "find each bundle in a directory of its own, or make one bundle with a manifest for both")
      set(${reason} "${text}" PARENT_SCOPE)
    endif()
    return()
  endif()
  # Where the project has found HIP's own package, its target says where the runtime is.
  set(runtime "$<IF:$<TARGET_EXISTS:hip::host>,hip::host,amdhip64>")
  if(static)
    add_library(qola::${component} STATIC IMPORTED)
    # HIP before what it needs itself: a linker reads archives from left to right.
    set_target_properties(qola::${component} PROPERTIES
      IMPORTED_LINK_INTERFACE_LANGUAGES CXX
      INTERFACE_LINK_LIBRARIES "${runtime};stdc++;m;pthread;dl")
  else()
    add_library(qola::${component} SHARED IMPORTED)
    # A library's soname is its file name.
    get_filename_component(name "${library}" NAME)
    set_target_properties(qola::${component} PROPERTIES
      IMPORTED_SONAME "${name}"
      INTERFACE_LINK_LIBRARIES "${runtime}")
  endif()
  # As system includes: a project's -Werror does not concern Composable Kernel's headers. CMake treats
  # those of imported targets so unless the project turns that off.
  set_target_properties(qola::${component} PROPERTIES
    IMPORTED_LOCATION "${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${include}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${include}")
endfunction()

# _qola_check_archs(<reason> <place> <wanted> <had>)
# Sets <reason> where an arch is wanted that is not had. Both are lists; what an arch has behind a
# colon (gfx942:xnack-) says nothing about which code it runs.
function(_qola_check_archs reason place wanted had)
  set(missing)
  foreach(arch IN LISTS wanted)
    string(REGEX REPLACE ":.*" "" arch "${arch}")
    if(NOT arch IN_LIST had AND NOT arch STREQUAL "native")
      list(APPEND missing "${arch}")
    endif()
  endforeach()
  if(missing)
    _qola_join(missing ${missing})
    _qola_join(wanted ${wanted})
    _qola_join(had ${had})
    _qola_finding(text "${place}" "libraries for ${had}, and none for ${missing}"
      "libraries for ${wanted}"
      "another bundle, from a manifest with these archs: [build] architectures, or qola build --arch")
    set(${reason} "${text}" PARENT_SCOPE)
  endif()
endfunction()

# _qola_package()
# What qola-config.cmake does once it has said what the bundle is. A component is there if its file
# beside this one says so, and its library is. Targets are declared when nothing is wrong.
# A macro, since find_package reads variables of the scope it is called in.
macro(_qola_package)
  set(_qola_reason)
  set(_qola_there)
  foreach(_qola_component IN ITEMS mha_fwd mha_bwd triton static)
    # Not those of another bundle.
    set(_qola_${_qola_component}_FILE)
    set(_qola_${_qola_component}_PACKS)
    set(qola_${_qola_component}_ARCHS)
    include("${qola_PREFIX}/lib/cmake/qola/qola-${_qola_component}.cmake" OPTIONAL)
    set(_qola_file "${qola_PREFIX}/lib/${_qola_${_qola_component}_FILE}")
    # Packs may be installed apart, or some of them alone.
    set(qola_${_qola_component}_PACKS)
    foreach(_qola_pack IN LISTS _qola_${_qola_component}_PACKS)
      if(EXISTS "${qola_PREFIX}/lib/${_qola_pack}")
        list(APPEND qola_${_qola_component}_PACKS "${qola_PREFIX}/lib/${_qola_pack}")
      endif()
    endforeach()
    if(_qola_${_qola_component}_FILE AND EXISTS "${_qola_file}")
      list(APPEND _qola_there ${_qola_component})
      file(SIZE "${_qola_file}" _qola_size)
      if(NOT _qola_size EQUAL _qola_${_qola_component}_SIZE)
        _qola_finding(_qola_reason "${_qola_file}" "${_qola_size} bytes"
          "${_qola_${_qola_component}_SIZE} bytes, as the bundle was made with"
          "the file is of another build, or cut off: install the bundle anew")
      endif()
    endif()
  endforeach()

  foreach(_qola_component IN LISTS qola_FIND_COMPONENTS)
    if(_qola_component IN_LIST _qola_there)
      set(qola_${_qola_component}_FOUND TRUE)
    else()
      set(qola_${_qola_component}_FOUND FALSE)
      if(qola_FIND_REQUIRED_${_qola_component})
        _qola_join(_qola_text ${_qola_there})
        _qola_finding(_qola_reason "${qola_PREFIX}/lib"
          "the components ${_qola_text}" "the component ${_qola_component} as well"
          "a bundle that has it: libmha_fwd, libmha_bwd or [[triton]] of the manifest, qola build --static")
      endif()
    endif()
  endforeach()

  set(_qola_components ${qola_FIND_COMPONENTS})
  if(NOT _qola_components)
    set(_qola_components ${_qola_there})
  endif()
  set(_qola_wanted "${qola_REQUIRED_ARCHS}")
  if(qola_CHECK_ARCHS AND NOT _qola_wanted)
    set(_qola_wanted "${CMAKE_HIP_ARCHITECTURES}")
  endif()
  foreach(_qola_component IN LISTS _qola_components)
    if(_qola_component IN_LIST _qola_there)
      _qola_check_archs(_qola_reason "${qola_PREFIX}/lib/${_qola_${_qola_component}_FILE}"
        "${_qola_wanted}" "${qola_${_qola_component}_ARCHS}")
    endif()
  endforeach()

  # Declared only now: who finds a target uses it.
  if(NOT _qola_reason)
    foreach(_qola_component IN LISTS _qola_there)
      set(_qola_static FALSE)
      if(_qola_component STREQUAL "static")
        set(_qola_static TRUE)
      endif()
      _qola_declare("${qola_PREFIX}/lib/${_qola_${_qola_component}_FILE}" ${_qola_static}
        "${qola_PREFIX}/include" ${_qola_component} _qola_reason)
    endforeach()
  endif()

  if(_qola_reason)
    set(qola_FOUND FALSE)
    set(qola_NOT_FOUND_MESSAGE "${_qola_reason}")
  endif()
endmacro()
