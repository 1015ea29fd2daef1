# gpurun_watched: the words before the command of a test that starts processes of ours. Only builds
# with a sanitizer have them. A report of any process of the run then fails the test
# (docs/testing.md).
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

# Environment of tests with programs that write caches. It keeps the caches of tests apart from the
# user's caches. tests/support/world and tests/programs/run_both.py do the same.
set(gpurun_test_home "HOME=${CMAKE_BINARY_DIR}/home;XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/home/.cache")
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/home/.cache")

# gpurun_not_sanitized(NAME...): tests that builds with a sanitizer leave out. docs/testing.md gives
# the reasons.
function(gpurun_not_sanitized)
  foreach(name IN LISTS ARGN)
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY LABELS not_sanitized)
    endif()
  endforeach()
endfunction()

# gpurun_test(NAME LABEL [ONE_THREAD] SOURCES ... LIBRARIES ... [TIMEOUT s]): one GoogleTest
# program, one ctest entry. LABEL is one of docs/testing.md: unit, conformance, interpose, emulated,
# e2e, tidy. ONE_THREAD: neither the test nor the tested code starts a thread. ThreadSanitizer then
# has nothing to check, and its build leaves the program out. The test's own code is not optimised,
# because it is compiled more often than it is run.
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

# gpurun_skipped_test(NAME LABEL REASON): a test that cannot be built here. It appears as a skip
# with its reason.
function(gpurun_skipped_test name label reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${reason}")
  set_tests_properties(${name} PROPERTIES LABELS ${label} SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()
