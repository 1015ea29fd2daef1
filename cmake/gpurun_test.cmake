# Before the command of a test that starts processes of ours. Builds with a sanitizer only: a report of
# any process of the run fails the test (docs/testing.md).
set(gpurun_watched "")
set(gpurun_symbolized "")  # Before any other: reports name functions (tests/sanitizers/symbolizer.c).
if(NOT GPURUN_SANITIZE STREQUAL "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(symbolizer "${CMAKE_BINARY_DIR}/tests/llvm-symbolizer")
    set(gpurun_symbolized ${CMAKE_COMMAND} -E env
        "ASAN_SYMBOLIZER_PATH=${symbolizer}" "TSAN_SYMBOLIZER_PATH=${symbolizer}")
  endif()
  set(gpurun_watched ${gpurun_symbolized} ${Python3_EXECUTABLE} -B
      "${CMAKE_SOURCE_DIR}/tests/sanitizers/watched.py")
endif()

# Environment of tests whose programs keep something: what this user's have kept does not change what a
# test sees, nor the other way round. tests/world and tests/programs/run_both.py do the same.
set(gpurun_test_home "HOME=${CMAKE_BINARY_DIR}/home;XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/home/.cache")
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/home/.cache")

# gpurun_not_sanitized(NAME...): tests that builds with a sanitizer leave out; docs/testing.md says why.
function(gpurun_not_sanitized)
  foreach(name IN LISTS ARGN)
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY LABELS not_sanitized)
    endif()
  endforeach()
endfunction()

# gpurun_test(NAME LABEL [ONE_THREAD] SOURCES ... LIBRARIES ... [TIMEOUT s]): one GoogleTest program, one
# ctest entry. LABEL is one of docs/testing.md: unit, conformance, interpose, emulated, e2e, tidy.
# ONE_THREAD: neither the test nor what it tests starts a thread, so ThreadSanitizer has nothing to see
# and its build leaves the program out. The test's own code is not optimised: it is compiled more often
# than it is run.
function(gpurun_test name label)
  cmake_parse_arguments(ARG "ONE_THREAD" "TIMEOUT" "SOURCES;LIBRARIES;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE gpurun_options ${ARG_LIBRARIES} GTest::gtest GTest::gmock
                        GTest::gtest_main Threads::Threads)
  target_compile_options(${name} PRIVATE -O0)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${gpurun_watched} $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "${gpurun_test_home};${ARG_ENVIRONMENT}")
  if(ARG_ONE_THREAD AND GPURUN_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    set_property(TEST ${name} APPEND PROPERTY LABELS one_thread)
  endif()
endfunction()

# gpurun_skipped_test(NAME LABEL REASON): what cannot be built here still shows, as a skip with its reason.
function(gpurun_skipped_test name label reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${reason}")
  set_tests_properties(${name} PROPERTIES LABELS ${label} SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()
