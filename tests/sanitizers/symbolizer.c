// Stands before LLVM's symbolizer, which a process with a report starts: under gpurun it would be
// started with our library before its own, and end, for it has no sanitizer. This is linked
// statically, and so gets none. It must be called llvm-symbolizer to be taken for one.
#include <stdlib.h>
#include <unistd.h>

int main(int count, char** words) {
  (void)count;
  unsetenv("LD_PRELOAD");
  unsetenv("LD_LIBRARY_PATH");
  execv(SYMBOLIZER, words);
  return 127;
}
