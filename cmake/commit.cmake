# Writes a source file with the commit of the sources, for --version. Each build runs it:
#   cmake -DSOURCE=FOLDER -DOUTPUT=FILE -P commit.cmake
# An unchanged file is not written, so that nothing is compiled again.
#
#   50f9d4fe           the commit that is checked out
#   50f9d4fe+changes   the same, and git reports other changes
#   unknown            SOURCE is not the top folder of a git checkout, and not from git archive, which
#                      writes the commit into archived_commit.txt (.gitattributes)
cmake_minimum_required(VERSION 3.25)

# A hook of another repository may have set these.
foreach(variable GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX)
  unset(ENV{${variable}})
endforeach()
find_program(git git)
set(commit "")
# A checkout within the folder of another repository must not get that one's commit.
if(git AND EXISTS "${SOURCE}/.git")
  # safe.directory: root may build the checkout of another user. Optional locks would disturb a git
  # command that runs beside the build.
  set(ask "${git}" --no-optional-locks -c "safe.directory=${SOURCE}" -C "${SOURCE}")
  execute_process(COMMAND ${ask} rev-parse --verify HEAD
                  RESULT_VARIABLE failed OUTPUT_VARIABLE head ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND head MATCHES "^[0-9a-f]+$")
    string(SUBSTRING "${head}" 0 8 commit)
    execute_process(COMMAND ${ask} status --porcelain
                    RESULT_VARIABLE failed OUTPUT_VARIABLE changes ERROR_QUIET)
    if(failed OR NOT changes STREQUAL "")
      string(APPEND commit "+changes")
    endif()
  endif()
elseif(EXISTS "${SOURCE}/cmake/archived_commit.txt")
  file(STRINGS "${SOURCE}/cmake/archived_commit.txt" archived LIMIT_COUNT 1)
  if(archived MATCHES "^[0-9a-f]+$")
    string(SUBSTRING "${archived}" 0 8 commit)
  endif()
endif()
if(commit STREQUAL "")
  set(commit unknown)
endif()

set(text "// The commit of the sources at the build.
#include \"protocol/control/version_line.h\"
namespace gpurun::protocol {
const char* const kCommit = \"${commit}\";
}
")
set(written "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" written)
endif()
if(NOT written STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
