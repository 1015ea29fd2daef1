// Preloaded dlsym(): a library of the user's that answers for a name of its own, as tools that
// replace a program's functions do. Every other look-up is the C library's.
#include <dlfcn.h>

#include <cstring>

namespace {

using LookUp = void*(void*, const char*);

#if defined(__x86_64__)
constexpr char kVersion[] = "GLIBC_2.2.5";
#else
constexpr char kVersion[] = "GLIBC_2.17";
#endif

int number_of_preloaded() { return 7; }

}  // namespace

extern "C" void* dlsym(void* library, const char* name) noexcept {
  static auto* const real = reinterpret_cast<LookUp*>(dlvsym(RTLD_NEXT, "dlsym", kVersion));
  if (std::strcmp(name, "number_of_preloaded") == 0) {
    return reinterpret_cast<void*>(&number_of_preloaded);
  }
  return real(library, name);
}
