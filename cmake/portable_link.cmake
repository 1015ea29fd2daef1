# Portable link: what one build needs to run on several releases of several distributions.
#
# gpurun_link_portably(TARGET...): a program of ours gets an archive of g++'s library, and needs no
# glibc newer than 2.35. Builds with a sanitizer keep the shared library, which their runtime
# intercepts.
#
# gpurun_own_random_source(TARGET...): for a target that links that archive by options of its own.
# The archive of a g++ of glibc 2.36 calls arc4random(), which older ones lack.
#
# The client for old systems has the C++ library of its compiler, and needs neither.
if(NOT GPURUN_CLIENT_ONLY)
  add_library(gpurun_random_source OBJECT "${CMAKE_SOURCE_DIR}/base/arc4random.c")
  target_link_libraries(gpurun_random_source PRIVATE gpurun_options)
endif()

function(gpurun_own_random_source)
  if(GPURUN_CLIENT_ONLY)
    return()
  endif()
  foreach(target IN LISTS ARGN)
    target_link_libraries(${target} PRIVATE gpurun_random_source)
  endforeach()
endfunction()

function(gpurun_link_portably)
  if(GPURUN_CLIENT_ONLY OR NOT GPURUN_SANITIZE STREQUAL "")
    return()
  endif()
  foreach(target IN LISTS ARGN)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed)
  endforeach()
  gpurun_own_random_source(${ARGN})
endfunction()
