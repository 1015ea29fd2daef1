// The table of operations that the inline functions of <infiniband/verbs.h> use.
#pragma once

#include "tests/drivers/verbs/objects.h"

namespace gpurun::verbs_double {

void fill_operations(Context& context);

}  // namespace gpurun::verbs_double
