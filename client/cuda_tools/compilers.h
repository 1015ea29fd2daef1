// Compilers: NVIDIA's compilers in the program's own process that make machine code, NVRTC and
// nvPTXCompiler. Each compilation gets line information, because the machine code then carries its
// PTX (driver_abi/cubin_with_ptx.h).
//
// Everything else is the compiler's own: result, log and the code itself, which stays right for a
// GPU. Any thread. Nothing is locked.
#pragma once

#include <cstddef>

namespace gpurun::client::cuda_tools {

// nvrtcCompileProgram() and nvPTXCompilerCompile().
using Compile = int(void* object, int count, const char* const* options);

enum class Compiler { kNvrtc, kPtx };

// Whether the compilation makes machine code and no option gives it line information, or refuses
// that.
bool lacks_lines(Compiler compiler, int count, const char* const* options) noexcept;

// Calls `real` with line information where it lacks it, and without if the compiler does not know
// that option.
int compile_with_lines(Compiler compiler, Compile* real, void* object, int count,
                       const char* const* options) noexcept;

// Stands in front of `real` for a program that has looked it up. Equal functions get equal ones.
// `real` itself: there are too many, and its code stays without PTX.
inline constexpr std::size_t kFrontsMax = 8;
Compile* in_front_of(Compiler compiler, Compile* real) noexcept;

}  // namespace gpurun::client::cuda_tools
