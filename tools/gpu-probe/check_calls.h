// Wrong calls, many in one process, compared with what the table says.
#pragma once

#include <string>

namespace gpurun::probe {

// Makes each call of the table: those of one level in one process, one after the other. Prints a
// line each: function, how, code, and WRONG where the code is not the expected one, or where a call
// that failed has changed what the stage is made of. `only`: of this function; "": all. Returns an
// exit status: 0 when nothing is wrong, and every call could be made.
// `at_once`: a code that the next fence tells (`late` in the table) comes too late.
int check_calls(const std::string& libcuda, const std::string& only, bool at_once);

}  // namespace gpurun::probe
