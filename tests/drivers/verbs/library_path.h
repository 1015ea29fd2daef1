// The path of the verbs double, for tests that open it under libibverbs' name.
#pragma once

namespace gpurun::transport::test {

extern const char* const verbs_double_path;

}  // namespace gpurun::transport::test
