# Precompiled headers: half of the time to compile one of our files goes to the headers of the
# standard library and GoogleTest. With this option each is read once for each kind of target. Off
# by default, because a build without it reveals a file that lacks an include, and works better with
# a compiler cache.
option(GPURUN_PRECOMPILED_HEADERS "compile common headers once (tools/check does)" OFF)
if(NOT GPURUN_PRECOMPILED_HEADERS)
  return()
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With a precompiled header g++ 12 takes its library's strings for arrays of ours, and warns of
  # bounds.
  target_compile_options(gpurun_options INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
                         -Wno-stringop-overread)
endif()

set(gpurun_common_headers <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring>
    <deque> <functional> <map> <memory> <mutex> <optional> <span> <sstream> <string> <string_view>
    <thread> <unordered_map> <utility> <variant> <vector>)
set(empty_source "${CMAKE_BINARY_DIR}/generated/precompiled.cc")
file(WRITE "${empty_source}" "")

# The headers of libraries, of libraries that generate LLVM code, and of GoogleTest programs. Code
# for a program is compiled with other options than code for a library.
add_library(gpurun_precompiled OBJECT "${empty_source}")
target_precompile_headers(gpurun_precompiled PRIVATE ${gpurun_common_headers})
set(gpurun_llvm_targets "")
if(GPURUN_EMULATED)
  set(gpurun_llvm_targets gpurun_emulated_codegen gpurun_emulated_regions)
  add_library(gpurun_precompiled_llvm OBJECT "${empty_source}")
  target_include_directories(gpurun_precompiled_llvm SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
  target_precompile_headers(gpurun_precompiled_llvm PRIVATE ${gpurun_common_headers}
                            <llvm/IR/IRBuilder.h> <llvm/IR/Module.h>)
endif()
add_executable(gpurun_precompiled_tests "${empty_source}")
target_link_libraries(gpurun_precompiled_tests PRIVATE GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
target_compile_options(gpurun_precompiled_tests PRIVATE -O0)
target_precompile_headers(gpurun_precompiled_tests PRIVATE ${gpurun_common_headers} <gmock/gmock.h> <gtest/gtest.h>)
foreach(target gpurun_precompiled gpurun_precompiled_llvm gpurun_precompiled_tests)
  if(TARGET ${target})  # clang reads some of Cap'n Proto's headers first (compile_options.cmake).
    target_include_directories(${target} SYSTEM PRIVATE "${GPURUN_DEPS_DIR}/include")
  endif()
endforeach()

# gpurun_precompile(FOLDER): reuses the headers in every target in FOLDER and below that is compiled
# like one of these.
function(gpurun_precompile folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    get_target_property(options ${target} COMPILE_OPTIONS)
    list(FILTER options EXCLUDE REGEX "-fsanitize-coverage=")  # No other headers for that.
    set(is_test FALSE)
    if(type STREQUAL "EXECUTABLE" AND "GTest::gtest" IN_LIST libraries AND "-O0" IN_LIST options)
      set(is_test TRUE)  # One of gpurun_test().
    endif()
    if(NOT "gpurun_options" IN_LIST libraries OR "gpurun_model_code" IN_LIST libraries)
      continue()
    elseif(options AND NOT is_test)
      continue()
    endif()
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      get_source_file_property(source_options "${source}" TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
      if(source_options)
        set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
    if(target IN_LIST gpurun_llvm_targets)
      target_precompile_headers(${target} REUSE_FROM gpurun_precompiled_llvm)
    elseif(type MATCHES "^(STATIC|OBJECT|SHARED|MODULE)_LIBRARY$")
      target_precompile_headers(${target} REUSE_FROM gpurun_precompiled)
    elseif(is_test)
      target_precompile_headers(${target} REUSE_FROM gpurun_precompiled_tests)
    endif()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    gpurun_precompile("${below}")
  endforeach()
endfunction()
gpurun_precompile("${CMAKE_SOURCE_DIR}")
