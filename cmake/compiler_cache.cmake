# Compiler cache: ccache for builds from nothing, where it is installed. -DGPURUN_COMPILER_CACHE=ON
# turns it on, as tools/check does. Nothing requires it. With precompiled headers, ccache must
# ignore their times, and clang must not record these times.
option(GPURUN_COMPILER_CACHE "compile through ccache where it is installed" OFF)
if(GPURUN_COMPILER_CACHE)
  find_program(GPURUN_CCACHE ccache)
endif()
if(GPURUN_COMPILER_CACHE AND GPURUN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(gpurun_launcher ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${GPURUN_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${gpurun_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${gpurun_launcher})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()
