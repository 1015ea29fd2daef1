# Unity builds: up to twelve files of a target compiled as one, because most of the time goes to
# headers that all of them read (-DGPURUN_UNITY_BUILD=ON, as in tools/check). Off by default,
# because everyday work compiles one file after another, and a missing include then shows.
option(GPURUN_UNITY_BUILD "compile several files of a target at once (tools/check does)" OFF)
set(CMAKE_UNITY_BUILD ${GPURUN_UNITY_BUILD})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

# gpurun_compile_alone(FILE ...): files of the current folder that share a local name with another
# file of their target.
function(gpurun_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
if(GPURUN_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ takes the local types of an included source file for those of a header.
  target_compile_options(gpurun_options INTERFACE -Wno-subobject-linkage)
endif()
