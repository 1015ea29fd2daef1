// check_calls(): makes many wrong calls in one process, and compares the results with the table.
#pragma once

#include <string>

namespace gpurun::probe {

// Makes each call of the table. One process makes all calls of a level, one after the other. Prints
// a line for each: function, how, code. The line has WRONG when the code is not the expected one,
// or when a failed call has changed the stage. `only` selects one function, "" all. `at_once`: a
// code that the next fence returns (`late` in the table) is wrong. Returns an exit status: 0 when
// every call could be made, and nothing is wrong.
int check_calls(const std::string& libcuda, const std::string& only, bool at_once);

}  // namespace gpurun::probe
