# Warnings and sanitizers for our own code; third-party headers are included as system headers.
option(GPURUN_FUZZ "build the libFuzzer targets" OFF)
add_library(gpurun_options INTERFACE)
target_compile_options(gpurun_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${GPURUN_WERROR}>>:-Werror>)

if(GPURUN_SANITIZE STREQUAL "address")
  # Not enum: programs pass CUDA's enumerations across a C interface, and a value that this version
  # does not know is an input like others, answered with an error.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=enum -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(GPURUN_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT GPURUN_SANITIZE STREQUAL "")
  message(FATAL_ERROR "GPURUN_SANITIZE is '${GPURUN_SANITIZE}'; it may be empty, address or thread")
endif()
if(NOT GPURUN_SANITIZE STREQUAL "" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns of its own library's std::function once it is instrumented.
  add_compile_options(-Wno-maybe-uninitialized)
endif()
if(GPURUN_FUZZ)
  # Not function: a driver's functions are called through pointers of types of our own.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize=function
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${CMAKE_SOURCE_DIR}/tests/fuzz/capnp_with_clang.h>")
endif()
