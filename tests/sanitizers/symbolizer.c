// Symbolizer wrapper: starts LLVM's symbolizer for a process with a report. Under gpurun that
// program would start with our library before its own, and would end, because it has no sanitizer.
// This program is linked statically, so no library is loaded into it. Its name must be
// llvm-symbolizer.
#include <stdlib.h>
#include <unistd.h>

int main(int count, char** words) {
  (void)count;
  unsetenv("LD_PRELOAD");
  unsetenv("LD_LIBRARY_PATH");
  execv(SYMBOLIZER, words);
  return 127;
}
