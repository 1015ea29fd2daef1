// Failing driver: a driver library that loads but does not initialise, like NVIDIA's after its
// kernel module was replaced.
extern "C" int cuInit(unsigned) { return 803; }  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
