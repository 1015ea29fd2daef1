# Compile options: warnings and sanitizers for our own code. Third-party headers are included as
# system headers.
add_library(gpurun_options INTERFACE)
target_compile_options(gpurun_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${GPURUN_WERROR}>>:-Werror>)

# The options that nvcc's host compiler also gets (cuda_program.cmake). GPURUN_ASAN and GPURUN_TSAN
# are for the few places in the code that depend on the sanitizer.
set(gpurun_sanitizer_options "")
if(GPURUN_SANITIZE STREQUAL "address")
  # No `enum` check: programs pass CUDA's enumerations across a C interface. A value that this
  # version does not know is ordinary input, and the answer is an error. No `null`, `vptr` and
  # `object-size` checks: AddressSanitizer reports the same faults a step later, and these checks
  # double the compile time. No `function` check (clang only): a driver's functions are called
  # through pointers of our own types.
  set(gpurun_sanitizer_options -DGPURUN_ASAN=1 -fsanitize=address -fsanitize=undefined -fno-sanitize-recover=undefined)
  foreach(check enum null vptr object-size)
    list(APPEND gpurun_sanitizer_options -fno-sanitize=${check})
  endforeach()
elseif(GPURUN_SANITIZE STREQUAL "thread")
  set(gpurun_sanitizer_options -DGPURUN_TSAN=1 -fsanitize=thread)
elseif(NOT GPURUN_SANITIZE STREQUAL "")
  message(FATAL_ERROR "GPURUN_SANITIZE is '${GPURUN_SANITIZE}'; it may be empty, address or thread")
endif()
if(NOT GPURUN_SANITIZE STREQUAL "")
  list(APPEND gpurun_sanitizer_options -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    if(GPURUN_SANITIZE STREQUAL "address")
      list(APPEND gpurun_sanitizer_options -fno-sanitize=function)
    endif()
    # One runtime for a program and the libraries that it opens, as g++ does by default.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libclang_rt.tsan-x86_64.so
                    OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(runtime "${runtime}" DIRECTORY)
    list(APPEND gpurun_sanitizer_options -shared-libsan)
    set(gpurun_sanitizer_link_options -Wl,-rpath,${runtime})
    # libFuzzer's own archive, because -fsanitize=fuzzer links the sanitizer's shared runtime too
    # late.
    if(GPURUN_SANITIZE STREQUAL "address")
      find_library(GPURUN_LIBFUZZER libclang_rt.fuzzer-${CMAKE_SYSTEM_PROCESSOR}.a PATHS "${runtime}" NO_DEFAULT_PATH)
    endif()
  else()
    # g++ 12 warns of its own library's std::function when that is instrumented.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  add_compile_options(${gpurun_sanitizer_options})
  add_link_options(${gpurun_sanitizer_options} ${gpurun_sanitizer_link_options})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # g++ 12's <memory> uses names that it declares deprecated, and suppresses the warning only for
  # g++.
  target_compile_options(gpurun_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${CMAKE_SOURCE_DIR}/cmake/capnp_with_clang.h>")
endif()
