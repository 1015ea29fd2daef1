// A driver library that can be mapped and not be initialised, as NVIDIA's is after its kernel
// module was exchanged.
extern "C" int cuInit(unsigned) { return 803; }  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
