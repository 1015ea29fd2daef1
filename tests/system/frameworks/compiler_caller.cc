// Compiler caller: a library that is linked with a compiler, as a program's own library is.
#include <dlfcn.h>

extern "C" {

int nvrtcCompileProgram(void* program, int count, const char* const* options);

int compile_by_name() {
  const char* const options[] = {"-arch=sm_80"};
  const int result = nvrtcCompileProgram(nullptr, 1, options);
  return result + 1 - 1;  // No jump: the compiler sees this library as its caller.
}

int shadowed_number() { return 1; }

// The function of that name behind this library, or -1.
int number_behind() {
  void* const found = dlsym(RTLD_NEXT, "shadowed_number");
  return found == nullptr ? -1 : reinterpret_cast<int (*)()>(found)();
}

}  // extern "C"
