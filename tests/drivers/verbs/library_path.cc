// Compiled for each test, with the build's path (gpurun_on_verbs_double).
#include "tests/drivers/verbs/library_path.h"

namespace gpurun::transport::test {

const char* const verbs_double_path = GPURUN_TEST_VERBS_DOUBLE;

}  // namespace gpurun::transport::test
