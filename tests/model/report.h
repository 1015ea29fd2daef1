// What is told of a violation: where it was found, what each thread does, and its last steps.
#pragma once

#include <string>

namespace gpurun::model::report {

extern std::string how;           // Which execution of which scenario.
extern std::string (*explain)();  // What else is to be told; nullptr: nothing.
extern const char* finds;         // What must be found; nullptr: nothing may be.

}  // namespace gpurun::model::report
