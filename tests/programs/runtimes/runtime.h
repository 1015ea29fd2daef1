// Runtime: the functions of a libcudart that was opened by its path, of CUDA 11, 12 or 13. They are
// declared by hand (CUDA Runtime API manual of each; crt/host_runtime.h for the registration),
// because one program serves all versions, and no toolkit's header does.
#pragma once

#include <cstddef>

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;
using HostFunction = void (*)(void*);

enum CopyKind { kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kNoSuchKind = 77 };

// The argument of __cudaRegisterFatBinary in nvcc's code.
struct FatbinWrapper {
  unsigned magic;
  unsigned version;
  const void* data;
  void* prelinked;
};

class Runtime {
 public:
  // Ends the program with a message when the library or one of its functions is missing.
  explicit Runtime(const char* path);

  // Each is the function of its name. `int` stands for cudaError_t.
  int (*cudaRuntimeGetVersion)(int*);
  int (*cudaDriverGetVersion)(int*);
  int (*cudaGetDeviceCount)(int*);
  int (*cudaSetDevice)(int);
  int (*cudaGetDevice)(int*);
  int (*cudaDeviceGetAttribute)(int*, int attribute, int device);
  int (*cudaMemGetInfo)(std::size_t*, std::size_t*);
  int (*cudaDeviceSynchronize)();
  int (*cudaDeviceReset)();
  int (*cudaGetLastError)();
  int (*cudaPeekAtLastError)();
  const char* (*cudaGetErrorString)(int);
  const char* (*cudaGetErrorName)(int);
  int (*cudaMalloc)(void**, std::size_t);
  int (*cudaFree)(void*);
  int (*cudaMallocHost)(void**, std::size_t);
  int (*cudaFreeHost)(void*);
  int (*cudaMallocAsync)(void**, std::size_t, Stream);
  int (*cudaFreeAsync)(void*, Stream);
  int (*cudaMemcpy)(void*, const void*, std::size_t, int kind);
  int (*cudaMemcpyAsync)(void*, const void*, std::size_t, int kind, Stream);
  int (*cudaMemcpy2D)(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int);
  int (*cudaMemcpyToSymbol)(const void*, const void*, std::size_t, std::size_t, int);
  int (*cudaMemset)(void*, int, std::size_t);
  int (*cudaMemsetAsync)(void*, int, std::size_t, Stream);
  int (*cudaStreamCreateWithFlags)(Stream*, unsigned);
  int (*cudaStreamDestroy)(Stream);
  int (*cudaStreamSynchronize)(Stream);
  int (*cudaStreamQuery)(Stream);
  int (*cudaStreamWaitEvent)(Stream, Event, unsigned);
  int (*cudaLaunchHostFunc)(Stream, HostFunction, void*);
  int (*cudaStreamBeginCapture)(Stream, int mode);
  int (*cudaStreamEndCapture)(Stream, Graph*);
  int (*cudaGraphLaunch)(GraphExec, Stream);
  int (*cudaGraphExecDestroy)(GraphExec);
  int (*cudaGraphDestroy)(Graph);
  int (*cudaEventCreate)(Event*);
  int (*cudaEventDestroy)(Event);
  int (*cudaEventRecord)(Event, Stream);
  int (*cudaEventSynchronize)(Event);
  int (*cudaEventQuery)(Event);
  int (*cudaEventElapsedTime)(float*, Event, Event);
  int (*cudaFuncGetAttributes)(void*, const void*);
  int (*cudaOccupancyMaxActiveBlocksPerMultiprocessor)(int*, const void*, int, std::size_t);
  int (*cudaLaunchKernel)(const void*, Dim3, Dim3, void**, std::size_t, Stream);
  void** (*__cudaRegisterFatBinary)(void*);
  void (*__cudaRegisterFatBinaryEnd)(void**);
  void (*__cudaUnregisterFatBinary)(void**);
  void (*__cudaRegisterFunction)(void**, const char* host, char* device, const char* name, int,
                                 void*, void*, void*, void*, int*);
  void (*__cudaRegisterVar)(void**, char* host, char* device, const char* name, int external,
                            std::size_t bytes, int constant, int global);

  // Functions with a structure or signature that differs between the versions.
  int properties(void* bytes, int device) const { return properties_(bytes, device); }
  int instantiate(GraphExec* exec, Graph graph) const;
  int version() const { return version_; }

 private:
  void* library_;
  int version_ = 0;
  int (*properties_)(void*, int);  // cudaGetDeviceProperties, in its newest version.
  void* instantiate_;
};
