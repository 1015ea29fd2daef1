# gpurun_cuda_program(NAME SOURCES ... [RUNTIME static|shared] [OPTIONS ...] [LIBRARIES ...]): a
# CUDA program built by nvcc, as any user would build it. The program knows nothing of gpurun.
# Without nvcc the target does not exist, so callers check `if(TARGET NAME)`. The program is written
# to build/.../programs/NAME.
function(gpurun_cuda_program name)
  cmake_parse_arguments(ARG "" "RUNTIME" "SOURCES;OPTIONS;LIBRARIES" ${ARGN})
  if(NOT GPURUN_NVCC)
    return()
  endif()
  if(NOT ARG_RUNTIME)
    set(ARG_RUNTIME static)
  endif()
  set(output "${CMAKE_BINARY_DIR}/programs/${name}")
  # In a build with a sanitizer the host code gets the same options as all other code
  # (compile_options.cmake).
  set(host_flags -Wall,-Wextra)
  set(host_compiler "")
  set(link_flags "")
  if(NOT GPURUN_SANITIZE STREQUAL "")
    list(JOIN gpurun_sanitizer_options "," sanitizer)
    string(APPEND host_flags ",${sanitizer}")
    set(host_compiler -ccbin ${CMAKE_CXX_COMPILER})
    set(link_flags -Xcompiler=${sanitizer} ${gpurun_sanitizer_link_options})
    list(TRANSFORM link_flags REPLACE "^-Wl," "-Xlinker=")
  endif()
  set(objects "")
  foreach(source IN LISTS ARG_SOURCES)
    get_filename_component(absolute "${source}" ABSOLUTE)
    string(MAKE_C_IDENTIFIER "${source}" identifier)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}_${identifier}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND ${GPURUN_NVCC} -std=c++17 -O2 -I${CMAKE_SOURCE_DIR} ${host_compiler} -Xcompiler=${host_flags} ${ARG_OPTIONS}
              -MD -MF "${object}.d" -MT "${object}" -c "${absolute}" -o "${object}"
      DEPENDS "${absolute}" DEPFILE "${object}.d" VERBATIM
      COMMENT "nvcc ${name}: ${source}")
    list(APPEND objects "${object}")
  endforeach()
  add_custom_command(OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${CMAKE_BINARY_DIR}/programs"
    COMMAND ${GPURUN_NVCC} -cudart ${ARG_RUNTIME} ${ARG_OPTIONS} ${host_compiler} ${link_flags} ${objects} -o "${output}"
            ${ARG_LIBRARIES}
    DEPENDS ${objects} VERBATIM COMMENT "nvcc ${name}: link")
  add_custom_target(${name} ALL DEPENDS "${output}")
  set_target_properties(${name} PROPERTIES GPURUN_PROGRAM "${output}")
endfunction()
