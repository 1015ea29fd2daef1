// arc4random(): random bits of the kernel, in place of glibc's function of this name.
//
// The static libstdc++ of Debian 12 calls it for std::random_device. Glibc has the function since
// 2.36, so a program with that archive would not load on Ubuntu 22.04. This object is linked
// directly (cmake/portable_link.cmake), and its definition is not exported.
#include <sys/random.h>

__attribute__((visibility("hidden"))) unsigned int arc4random(void);

unsigned int arc4random(void) {
  unsigned int bits = 0;
  // Fails only before the kernel has random bits, when a signal arrives.
  while (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
  }
  return bits;
}
