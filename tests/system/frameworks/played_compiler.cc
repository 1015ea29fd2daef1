// Played compiler: stands for NVRTC and nvPTXCompiler as shared libraries. A compilation prints its
// options.
#include <cstdio>

extern "C" {

int nvrtcCompileProgram(void* /*program*/, int count, const char* const* options) {
  std::printf("nvrtc");
  for (int at = 0; at < count; ++at) std::printf(" %s", options[at]);
  std::printf("\n");
  return std::fflush(stdout);
}

int nvPTXCompilerCompile(void* /*compiler*/, int count, const char* const* options) {
  std::printf("ptx");
  for (int at = 0; at < count; ++at) std::printf(" %s", options[at]);
  std::printf("\n");
  return std::fflush(stdout);
}

// For a look-up behind another library that has it, too.
int shadowed_number() { return 2; }

}  // extern "C"
