# Up to twelve files of a target compiled as one: most of what one takes is the headers that all of
# them read (-DGPURUN_UNITY_BUILD=ON; tools/check does). Off by default: everyday work compiles
# one file after the other, and what a file does not include itself shows.
option(GPURUN_UNITY_BUILD "compile several files of a target at once (tools/check does)" OFF)
set(CMAKE_UNITY_BUILD ${GPURUN_UNITY_BUILD})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

# gpurun_compile_alone(FILE ...): files of the current folder with a local name that another file of their
# target has as well.
function(gpurun_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
if(GPURUN_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ takes a file's local types for a header's where the file is included.
  target_compile_options(gpurun_options INTERFACE -Wno-subobject-linkage)
endif()
