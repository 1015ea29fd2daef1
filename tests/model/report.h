// Report: the description of a violation, with the place where it was found, each thread's state,
// and its last steps.
#pragma once

#include <string>

namespace gpurun::model::report {

extern std::string how;           // The execution and its scenario.
extern std::string (*explain)();  // Adds to the report. nullptr: nothing.
extern const char* finds;         // The violation that must be found. nullptr: none may be found.

}  // namespace gpurun::model::report
