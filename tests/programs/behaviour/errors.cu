// Runtime API: errors of wrong calls, and the fault of a kernel, which is permanent.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

__global__ void write_to(unsigned* address) { *address = 1; }
__global__ void assert_even(unsigned value) {
  if (value % 2 != 0) __trap();
}

static bool all_right = true;

// Prints the code. `allowed` are the codes that the manual allows. The manual is NVIDIA's "CUDA
// Runtime API". The comments below name its sections.
static void expect(const char* what, cudaError_t code, std::initializer_list<cudaError_t> allowed) {
  bool good = false;
  for (const cudaError_t right : allowed) good |= code == right;
  std::printf("%s: %s%s\n", what, cudaGetErrorName(code), good ? "" : " (WRONG)");
  all_right &= good;
}

// Freed device memory does not become host memory, for either operand.
static void copies_of_freed_memory(bool in_streams) {
  char *gone, *live, host[64] = {};
  cudaStream_t stream;
  expect("memory", cudaMalloc(&gone, 1 << 20), {cudaSuccess});
  expect("more memory", cudaMalloc(&live, 1 << 20), {cudaSuccess});
  expect("stream", cudaStreamCreate(&stream), {cudaSuccess});
  expect("free", cudaFree(gone), {cudaSuccess});
  expect("it is gone", cudaDeviceSynchronize(), {cudaSuccess});
  const auto refused = [](const char* what, cudaError_t code) {
    expect(what, code, {cudaErrorInvalidValue});
    cudaGetLastError();
  };
  refused("freed to device", cudaMemcpy(live, gone, 4, cudaMemcpyDefault));
  refused("device to freed", cudaMemcpy(gone, live, 4, cudaMemcpyDefault));
  refused("freed to host", cudaMemcpy(host, gone, 4, cudaMemcpyDefault));
  refused("host to freed", cudaMemcpy(gone, host, 4, cudaMemcpyDefault));
  if (in_streams) {
    refused("freed to host, in a stream",
            cudaMemcpyAsync(host, gone, 4, cudaMemcpyDefault, stream));
    refused("host to freed, in a stream",
            cudaMemcpyAsync(gone, host, 4, cudaMemcpyDefault, stream));
    refused("freed to host, a box", cudaMemcpy2D(host, 4, gone, 4, 4, 4, cudaMemcpyDefault));
    refused("host to freed, a box", cudaMemcpy2D(gone, 4, host, 4, 4, 4, cudaMemcpyDefault));
  }
  expect("no error is left", cudaStreamSynchronize(stream), {cudaSuccess});
  expect("stream's end", cudaStreamDestroy(stream), {cudaSuccess});
  expect("free", cudaFree(live), {cudaSuccess});
}

// Device memory where the call's kind names host memory, and the reverse. The Driver API's manual
// (Unified Addressing) identifies memory by its address. The copy is made or refused, and the host
// never reads device memory.
static void copies_of_wrong_kind() {
  const auto expect_copied = [](const char* what, cudaError_t code) {
    expect(what, code, {cudaSuccess, cudaErrorInvalidValue});
    cudaGetLastError();
  };
  char *a, *b, host[400] = {}, value[64] = "a";
  cudaStream_t stream;
  expect("memory", cudaMalloc(&a, 4096), {cudaSuccess});
  expect("more memory", cudaMalloc(&b, 4096), {cudaSuccess});
  expect("stream", cudaStreamCreate(&stream), {cudaSuccess});
  const auto show = [&](const char* what) {
    expect(what, cudaMemcpy(host, b, 8, cudaMemcpyDeviceToHost), {cudaSuccess});
    std::printf("%s: \"%.8s\"\n", what, host);
    ++value[0];
    expect("new value", cudaMemcpy(a, value, sizeof value, cudaMemcpyHostToDevice), {cudaSuccess});
  };
  expect("values", cudaMemcpy(a, value, sizeof value, cudaMemcpyHostToDevice), {cudaSuccess});
  expect("no values", cudaMemset(b, 0, 4096), {cudaSuccess});
  expect_copied("device to device as if in", cudaMemcpy(b, a, 8, cudaMemcpyHostToDevice));
  show("what came in");
  expect_copied("device to device as if out", cudaMemcpy(b, a, 8, cudaMemcpyDeviceToHost));
  show("what came out");
  expect_copied("a box as if in", cudaMemcpy2D(b, 20, a, 20, 10, 2, cudaMemcpyHostToDevice));
  show("what came in by a box");
  expect_copied("a box as if out", cudaMemcpy2D(b, 20, a, 20, 10, 2, cudaMemcpyDeviceToHost));
  show("what came out by a box");
  expect_copied("in a stream as if in", cudaMemcpyAsync(b, a, 8, cudaMemcpyHostToDevice, stream));
  expect("stream", cudaStreamSynchronize(stream), {cudaSuccess});
  show("what came in by a stream");
  expect_copied("in a stream as if out", cudaMemcpyAsync(b, a, 8, cudaMemcpyDeviceToHost, stream));
  expect("stream", cudaStreamSynchronize(stream), {cudaSuccess});
  show("what came out by a stream");
  expect_copied("in a stream as if of hosts",
                cudaMemcpyAsync(b, a, 8, cudaMemcpyHostToHost, stream));
  expect("stream", cudaStreamSynchronize(stream), {cudaSuccess});
  show("what came by a stream");
  const auto refused = [](const char* what, cudaError_t code) {
    expect(what, code, {cudaErrorInvalidValue});
    cudaGetLastError();
  };
  host[0] = 0;
  expect_copied("out as if of hosts", cudaMemcpy(host, a, 4, cudaMemcpyHostToHost));
  std::printf("what came out: \"%.1s\"\n", host);
  refused("out as if in", cudaMemcpy(host, a, 4, cudaMemcpyHostToDevice));
  refused("in as if out", cudaMemcpy(a, host, 4, cudaMemcpyDeviceToHost));
  refused("in as if between", cudaMemcpyAsync(a, host, 8, cudaMemcpyDeviceToDevice, stream));
  refused("in, beyond", cudaMemcpy(b, a + 4092, 8, cudaMemcpyHostToDevice));
  refused("out, beyond", cudaMemcpy(b + 4092, a, 8, cudaMemcpyDeviceToHost));
  // Addresses without memory: null with an offset, and one that x86-64 does not have.
  const auto low = reinterpret_cast<char*>(0x5000), high = reinterpret_cast<char*>(~0ull - 4096);
  for (char* const nowhere : {low, high}) {
    refused("from nowhere", cudaMemcpy(a, nowhere, 4, cudaMemcpyHostToDevice));
    refused("from nowhere, in a stream",
            cudaMemcpyAsync(a, nowhere, 4, cudaMemcpyHostToDevice, stream));
    refused("from nowhere, a box", cudaMemcpy2D(a, 4, nowhere, 4, 4, 4, cudaMemcpyHostToDevice));
    refused("from nowhere, anything", cudaMemcpy(a, nowhere, 4096, cudaMemcpyDefault));
    refused("to nowhere", cudaMemcpy(nowhere, a, 4096, cudaMemcpyDeviceToHost));
    refused("to nowhere, anything", cudaMemcpy(nowhere, a, 4, cudaMemcpyDefault));
    refused("to nowhere from the host",
            cudaMemcpyAsync(nowhere, host, 4, cudaMemcpyDefault, stream));
  }
  expect("no error is left", cudaStreamSynchronize(stream), {cudaSuccess});
  expect("stream's end", cudaStreamDestroy(stream), {cudaSuccess});
  expect("free", cudaFree(a), {cudaSuccess});
  expect("free", cudaFree(b), {cudaSuccess});
}

// Calls that are refused at once.
static void refused_calls() {
  // Memory Management, cudaMalloc: cudaErrorMemoryAllocation, cudaErrorInvalidValue.
  void* memory = nullptr;
  expect("huge allocation", cudaMalloc(&memory, size_t{1} << 50), {cudaErrorMemoryAllocation});
  // Error Handling, cudaGetLastError: returns the last error and resets it to cudaSuccess.
  expect("last error", cudaGetLastError(), {cudaErrorMemoryAllocation});
  expect("last error again", cudaGetLastError(), {cudaSuccess});
  // Memory Management, cudaFree: a pointer that no allocation returned is cudaErrorInvalidValue.
  expect("free of nonsense", cudaFree(reinterpret_cast<void*>(0x1234)), {cudaErrorInvalidValue});
  cudaGetLastError();
  // Device Management, cudaSetDevice: no valid device is cudaErrorInvalidDevice.
  expect("bad device", cudaSetDevice(12345), {cudaErrorInvalidDevice});
  cudaGetLastError();
  // Data types, cudaErrorInvalidValue: a parameter is not within the range of acceptable values.
  expect("null result", cudaMalloc(nullptr, 16), {cudaErrorInvalidValue});
  cudaGetLastError();
  // Event Management, cudaEventElapsedTime: without a cudaEventRecord on both,
  // cudaErrorInvalidResourceHandle.
  cudaEvent_t event;
  expect("event", cudaEventCreate(&event), {cudaSuccess});
  float milliseconds;
  expect("elapsed of nothing", cudaEventElapsedTime(&milliseconds, event, event),
         {cudaErrorInvalidResourceHandle});
  cudaGetLastError();
  // Memory Management, cudaMemcpy: cudaErrorInvalidValue.
  expect("copy beyond",
         cudaMemcpy(reinterpret_cast<void*>(0x10), reinterpret_cast<void*>(0x20), 4,
                    cudaMemcpyDeviceToDevice),
         {cudaErrorInvalidValue});
  cudaGetLastError();
}

// Data types, cudaErrorInvalidConfiguration: a launch asks for more threads, blocks or shared
// memory than the device can ever give. The runtime gets this code from its driver, which the
// Driver API's manual (Execution Control, cuLaunchKernel) lets say CUDA_ERROR_INVALID_VALUE only;
// that is what the emulated device says and the runtime hands on. Nothing but these two is right.
static void refused_launches() {
  const auto refused = {cudaErrorInvalidConfiguration, cudaErrorInvalidValue};
  write_to<<<1, 2000>>>(nullptr);
  expect("too many threads", cudaGetLastError(), refused);
  write_to<<<0, 1>>>(nullptr);
  expect("empty grid", cudaGetLastError(), refused);
  write_to<<<1, 1, 1 << 30>>>(nullptr);
  expect("too much shared memory", cudaGetLastError(), refused);
  // None of them is sticky.
  expect("no error is left", cudaDeviceSynchronize(), {cudaSuccess});
}

static void faults() {
  assert_even<<<1, 1>>>(2);
  expect("even", cudaDeviceSynchronize(), {cudaSuccess});
  // Data types, cudaErrorIllegalAddress: a load or store of an invalid address; "any further CUDA
  // work will return the same error". The launch itself is asynchronous and returns success.
  unsigned* nowhere = nullptr;
  void* memory = nullptr;
  write_to<<<1, 1>>>(nowhere);
  expect("launch of the fault", cudaGetLastError(), {cudaSuccess});
  expect("fault", cudaDeviceSynchronize(), {cudaErrorIllegalAddress});
  expect("afterwards", cudaMalloc(&memory, 16), {cudaErrorIllegalAddress});
  expect("afterwards, synchronise", cudaDeviceSynchronize(), {cudaErrorIllegalAddress});
  // Device Management, cudaDeviceReset: destroys the device's state, and "any subsequent API call
  // to this device will reinitialize the device". (After a fault the manual advises a new process.)
  expect("reset", cudaDeviceReset(), {cudaSuccess});
  expect("after the reset", cudaMalloc(&memory, 16), {cudaSuccess});
  // Data types, cudaErrorLaunchFailure: an exception on the device while a kernel ran. (CUDA C++
  // Programming Guide, trap function: __trap() aborts the kernel and interrupts the host.)
  assert_even<<<1, 1>>>(3);
  expect("trap", cudaDeviceSynchronize(), {cudaErrorLaunchFailure});
}

// "synchronous": only the waiting calls with freed memory. Without windows no other call is refused
// in time. A product of sizes beyond 64 bits must not be taken for a small one.
static void boxes_beyond_all_memory() {
  static char host[64];
  char* device;
  expect("memory", cudaMalloc(&device, 1 << 20), {cudaSuccess});
  cudaMemcpy3DParms box = {};
  box.srcPtr = make_cudaPitchedPtr(host, 1 << 20, 4, 1);
  box.dstPtr = make_cudaPitchedPtr(device, 1 << 20, 4, 1);
  box.extent = make_cudaExtent(4, 1, (size_t{1} << 44) + 1);
  box.kind = cudaMemcpyHostToDevice;
  expect("a box beyond all memory", cudaMemcpy3D(&box), {cudaErrorInvalidValue});
  cudaGetLastError();
  expect("free", cudaFree(device), {cudaSuccess});
}

int main(int argc, char** argv) {
  refused_calls();
  boxes_beyond_all_memory();
  copies_of_freed_memory(argc == 1 || std::strcmp(argv[1], "synchronous") != 0);
  copies_of_wrong_kind();
  refused_launches();
  faults();
  std::printf("%s\n", all_right ? "PASSED" : "FAILED");
  return all_right ? 0 : 1;
}
