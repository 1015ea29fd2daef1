// Where no cuda.h of the table's version is installed.
#include "tests/apigen/facts.h"

Facts facts_of_cuda_h() { return {}; }
