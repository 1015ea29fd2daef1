// Compiler entries: the functions of NVIDIA's compilers that a program calls, and dlsym(), by which
// it looks them up. Each calls the compiler that the program would have called (compilers.h).
//
// dlsym() depends on its caller: RTLD_NEXT means the library behind that. So ours jumps to the C
// library's, with the caller's return address. It is in assembly because a compiler need not jump.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/log.h"
#include "client/cuda_tools/compilers.h"
#include "client/process/next_function.h"

namespace gpurun::client::cuda_tools {
namespace {

using LookUp = void*(void*, const char*);

constexpr char kNvrtcName[] = "nvrtcCompileProgram";
constexpr char kPtxName[] = "nvPTXCompilerCompile";
constexpr int kNvrtcInternalError = 11;  // NVRTC_ERROR_INTERNAL_ERROR
constexpr int kPtxInternalError = 4;     // NVPTXCOMPILE_ERROR_INTERNAL
// The libraries that a program may have loaded for itself alone, the newest first.
constexpr const char* kLibraries[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};

#if defined(__x86_64__)
constexpr char kFirstVersion[] = "GLIBC_2.2.5";
#else
constexpr char kFirstVersion[] = "GLIBC_2.17";
#endif
// What gpurun_look_up() returns for NULL.
void* const kNotFound = reinterpret_cast<void*>(~std::uintptr_t{0});

}  // namespace

extern "C" {

// The next dlsym(), for the jump: the C library's, or that of another preloaded library. Set by the
// first call of gpurun_look_up().
__attribute__((visibility("hidden"))) LookUp* gpurun_real_dlsym = nullptr;

// nullptr: the next dlsym() answers. kNotFound: there is no such symbol.
__attribute__((visibility("hidden"), used)) void* gpurun_look_up(void* library,
                                                                 const char* name) noexcept;

int started_nvrtc(void* object, int count, const char* const* options)
    GPURUN_AS("nvrtcCompileProgram");
int started_ptx(void* object, int count, const char* const* options)
    GPURUN_AS("nvPTXCompilerCompile");

}  // extern "C"

namespace {

// Its first version is in each C library, so that the search does not fail, which would allocate.
LookUp* real_dlsym() noexcept {
  LookUp* found = __atomic_load_n(&gpurun_real_dlsym, __ATOMIC_ACQUIRE);
  if (found == nullptr) {
    found = reinterpret_cast<LookUp*>(dlvsym(RTLD_NEXT, "dlsym", kFirstVersion));
    found = reinterpret_cast<LookUp*>(found(RTLD_NEXT, "dlsym"));
    __atomic_store_n(&gpurun_real_dlsym, found, __ATOMIC_RELEASE);
  }
  return found;
}

bool is_ours(void* function) noexcept {
  return function == reinterpret_cast<void*>(&started_nvrtc) ||
         function == reinterpret_cast<void*>(&started_ptx);
}

void* look_up_in(const char* file, const char* name) noexcept {
  void* const library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const found = real_dlsym()(library, name);
  dlclose(library);  // Its first user keeps it loaded.
  return is_ours(found) ? nullptr : found;
}

// The function that `caller` would have called. It may belong to a library that the caller's own
// library has loaded for itself.
Compile* find_real(const char* name, const void* caller) noexcept {
  Dl_info about = {};
  const bool of_caller = dladdr(caller, &about) != 0 && about.dli_fname != nullptr;
  // NVRTC's names have versions, and the object is of the caller's version. Another one may be
  // global.
  const bool has_versions = std::strcmp(name, kNvrtcName) == 0;
  void* found = has_versions && of_caller ? look_up_in(about.dli_fname, name) : nullptr;
  if (found == nullptr) found = real_dlsym()(RTLD_NEXT, name);
  if (found == nullptr && of_caller) found = look_up_in(about.dli_fname, name);
  for (const char* library : kLibraries) {
    if (found == nullptr) found = look_up_in(library, name);
  }
  if (found == nullptr) GPURUN_LOG(kError, "%s: its library is not loaded", name);
  return reinterpret_cast<Compile*>(found);
}

}  // namespace

extern "C" {

void* gpurun_look_up(void* library, const char* name) noexcept {
  LookUp* const real = real_dlsym();
  if (name == nullptr || library == RTLD_NEXT) return nullptr;
  const bool nvrtc = std::strcmp(name, kNvrtcName) == 0;
  if (!nvrtc && std::strcmp(name, kPtxName) != 0) return nullptr;
  const bool by_default = library == RTLD_DEFAULT;
  // Ours is in front of all others, and stands for none by itself.
  void* const found = real(by_default ? RTLD_NEXT : library, name);
  if (found == nullptr && by_default) return kNotFound;
  if (found == nullptr || is_ours(found)) return nullptr;
  return reinterpret_cast<void*>(
      in_front_of(nvrtc ? Compiler::kNvrtc : Compiler::kPtx, reinterpret_cast<Compile*>(found)));
}

int started_nvrtc(void* object, int count, const char* const* options) {
  Compile* const real = find_real(kNvrtcName, __builtin_return_address(0));
  if (real == nullptr) return kNvrtcInternalError;
  return compile_with_lines(Compiler::kNvrtc, real, object, count, options);
}

int started_ptx(void* object, int count, const char* const* options) {
  Compile* const real = find_real(kPtxName, __builtin_return_address(0));
  if (real == nullptr) return kPtxInternalError;
  return compile_with_lines(Compiler::kPtx, real, object, count, options);
}

}  // extern "C"
}  // namespace gpurun::client::cuda_tools

#if defined(__x86_64__)
__asm__(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call gpurun_look_up
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  jne 1f
  jmp *gpurun_real_dlsym(%rip)
1:
  cmpq $-1, %rax
  jne 2f
  xorl %eax, %eax
2:
  ret
  .cfi_endproc
  .size dlsym, . - dlsym
  .popsection
)");
#elif defined(__aarch64__)
__asm__(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, %function
dlsym:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  stp x0, x1, [sp, #16]
  bl gpurun_look_up
  mov x9, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_def_cfa_offset 0
  .cfi_restore 29
  .cfi_restore 30
  cbnz x9, 1f
  adrp x16, gpurun_real_dlsym
  ldr x16, [x16, #:lo12:gpurun_real_dlsym]
  br x16
1:
  cmn x9, #1
  csel x0, xzr, x9, eq
  ret
  .cfi_endproc
  .size dlsym, . - dlsym
  .popsection
)");
#endif
