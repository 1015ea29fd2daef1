// Symbol look-ups: a program that asks dlsym(RTLD_DEFAULT, ...) for compilers before and after it
// has loaded one, and for a function that only a preloaded dlsym() knows. It prints each answer.
//
// usage: symbol_look_ups COMPILER_LIBRARY
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace {

template <typename Function>
Function* look_up(const char* name) {
  dlerror();
  auto* found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found != nullptr) return found;
  const char* const reason = dlerror();
  const bool named = reason != nullptr && std::strstr(reason, name) != nullptr;
  std::printf("%s: none, %s\n", name, named ? "dlerror() names it" : "without its reason");
  return nullptr;
}

void compile(const char* name, const char* option) {
  if (auto* function = look_up<int(void*, int, const char* const*)>(name)) {
    std::fflush(stdout);
    function(nullptr, 1, &option);
  }
}

void compile_by_each() {
  compile("nvrtcCompileProgram", "-arch=sm_80");
  compile("nvPTXCompilerCompile", "--gpu-name=sm_80");
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  compile_by_each();
  if (dlopen(words[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) return 1;
  compile_by_each();
  if (auto* function = look_up<int()>("number_of_preloaded")) std::printf("%d\n", function());
  return 0;
}
