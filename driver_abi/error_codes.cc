// Error codes: the table of CUresult values.
#include "driver_abi/error_codes.h"

#include <algorithm>
#include <iterator>

namespace gpurun::driver_abi {
namespace {

struct ErrorCode {
  CUresult result;
  const char* name;
  const char* text;
};

#define GPURUN_ERROR(name, text) \
  { name, #name, text }

// In ascending order.
constexpr ErrorCode kErrorCodes[] = {
    GPURUN_ERROR(CUDA_SUCCESS, "no error"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    GPURUN_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    GPURUN_ERROR(CUDA_ERROR_NOT_INITIALIZED, "the driver is not initialized"),
    GPURUN_ERROR(CUDA_ERROR_DEINITIALIZED, "the driver is shutting down"),
    GPURUN_ERROR(CUDA_ERROR_PROFILER_DISABLED, "the profiler is disabled"),
    GPURUN_ERROR(CUDA_ERROR_PROFILER_NOT_INITIALIZED,
                 "the profiler is not initialized (deprecated)"),
    GPURUN_ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED,
                 "the profiler is running already (deprecated)"),
    GPURUN_ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED,
                 "the profiler is stopped already (deprecated)"),
    GPURUN_ERROR(CUDA_ERROR_STUB_LIBRARY, "a stub library is loaded in place of the CUDA driver"),
    GPURUN_ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "this call needs a newer driver"),
    GPURUN_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is busy or unavailable"),
    GPURUN_ERROR(CUDA_ERROR_MULTICAST_RESOURCE_FULL,
                 "the device has no room for another multicast binding"),
    GPURUN_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA device was found"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    GPURUN_ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "the device has no license"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_IMAGE, "the device code image is invalid"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid or missing device context"),
    GPURUN_ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "the context is current already (deprecated)"),
    GPURUN_ERROR(CUDA_ERROR_MAP_FAILED, "mapping failed"),
    GPURUN_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping failed"),
    GPURUN_ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "the array is mapped"),
    GPURUN_ERROR(CUDA_ERROR_ALREADY_MAPPED, "the resource is mapped already"),
    GPURUN_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no code image fits this device"),
    GPURUN_ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "the resource is acquired already"),
    GPURUN_ERROR(CUDA_ERROR_NOT_MAPPED, "the resource is not mapped"),
    GPURUN_ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "the resource is not mapped as an array"),
    GPURUN_ERROR(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "the resource is not mapped as a pointer"),
    GPURUN_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error"),
    GPURUN_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "the device does not have this limit"),
    GPURUN_ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "the context is in use by another thread"),
    GPURUN_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                 "peer access is not supported between these devices"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_PTX, "the PTX code could not be compiled"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context"),
    GPURUN_ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error"),
    GPURUN_ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "the PTX compiler was not found"),
    GPURUN_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                 "the PTX was made by an unsupported toolchain"),
    GPURUN_ERROR(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX compilation is disabled"),
    GPURUN_ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
                 "the device does not support this execution affinity"),
    GPURUN_ERROR(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
                 "the code calls cudaDeviceSynchronize on the device, which is not supported"),
    GPURUN_ERROR(CUDA_ERROR_CONTAINED, "an error was contained; restart the program"),
    GPURUN_ERROR(CUDA_ERROR_INSUFFICIENT_LOADER_VERSION,
                 "the code image needs a newer loader than this driver has"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_SOURCE, "the device kernel source is invalid"),
    GPURUN_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    GPURUN_ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
                 "a symbol of a shared object was not found"),
    GPURUN_ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "a shared object failed to initialize"),
    GPURUN_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "an operating system call failed"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    GPURUN_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the resource is not in a valid state for this call"),
    GPURUN_ERROR(CUDA_ERROR_LOSSY_QUERY, "the query would lose part of the answer"),
    GPURUN_ERROR(CUDA_ERROR_NOT_FOUND, "the named symbol was not found"),
    GPURUN_ERROR(CUDA_ERROR_NOT_READY, "the work is not complete yet"),
    GPURUN_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel accessed memory at an illegal address"),
    GPURUN_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                 "the launch needs more resources than the device has"),
    GPURUN_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch was ended by the time limit"),
    GPURUN_ERROR(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
                 "the launch uses incompatible texturing"),
    GPURUN_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is enabled already"),
    GPURUN_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access is not enabled"),
    GPURUN_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is active already"),
    GPURUN_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is destroyed"),
    GPURUN_ERROR(CUDA_ERROR_ASSERT, "an assertion failed in device code"),
    GPURUN_ERROR(CUDA_ERROR_TOO_MANY_PEERS, "too many peers"),
    GPURUN_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                 "the host memory is registered already"),
    GPURUN_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the host memory is not registered"),
    GPURUN_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    GPURUN_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel executed an illegal instruction"),
    GPURUN_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "a kernel accessed a misaligned address"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE,
                 "a kernel used an address of the wrong memory space"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_PC, "the program counter is invalid"),
    GPURUN_ERROR(CUDA_ERROR_LAUNCH_FAILED, "a kernel failed"),
    GPURUN_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                 "too many blocks in a cooperative launch"),
    GPURUN_ERROR(CUDA_ERROR_TENSOR_MEMORY_LEAK, "a kernel ended without freeing its tensor memory"),
    GPURUN_ERROR(CUDA_ERROR_NOT_PERMITTED, "the operation is not permitted"),
    GPURUN_ERROR(CUDA_ERROR_NOT_SUPPORTED, "the operation is not supported"),
    GPURUN_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "the system is not ready for CUDA work"),
    GPURUN_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "display driver and CUDA driver do not match"),
    GPURUN_ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
                 "forward compatibility is not supported on this device"),
    GPURUN_ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED,
                 "the MPS control daemon or server could not be reached"),
    GPURUN_ERROR(CUDA_ERROR_MPS_RPC_FAILURE, "a remote call between MPS server and client failed"),
    GPURUN_ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY, "the MPS server is not ready"),
    GPURUN_ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                 "the MPS server has no room for another client"),
    GPURUN_ERROR(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "the MPS server has no connection left"),
    GPURUN_ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS server ended this client"),
    GPURUN_ERROR(CUDA_ERROR_CDP_NOT_SUPPORTED, "dynamic parallelism is not supported here"),
    GPURUN_ERROR(CUDA_ERROR_CDP_VERSION_MISMATCH, "two versions of dynamic parallelism were mixed"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 "the operation is not permitted while the stream is captured"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 "an earlier error invalidated this capture"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the operation would merge two captures"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was not begun in this stream"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                 "the capture has work that was not joined to its origin stream"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                 "the operation would make the capture depend on work outside of it"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                 "the operation would make the capture depend on the legacy stream"),
    GPURUN_ERROR(CUDA_ERROR_CAPTURED_EVENT,
                 "the operation is not permitted on an event last recorded in a capture"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                 "the capture must end in the thread that began it"),
    GPURUN_ERROR(CUDA_ERROR_TIMEOUT, "the wait timed out"),
    GPURUN_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                 "the graph differs too much to update the executable graph"),
    GPURUN_ERROR(CUDA_ERROR_EXTERNAL_DEVICE, "a device outside CUDA failed"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size"),
    GPURUN_ERROR(CUDA_ERROR_FUNCTION_NOT_LOADED, "the function is not loaded"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type"),
    GPURUN_ERROR(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration"),
    GPURUN_ERROR(CUDA_ERROR_KEY_ROTATION, "encryption keys are being rotated"),
    GPURUN_ERROR(CUDA_ERROR_STREAM_DETACHED, "the stream was detached"),
    GPURUN_ERROR(CUDA_ERROR_GRAPH_RECAPTURE_FAILURE, "the graph could not be captured again"),
    GPURUN_ERROR(CUDA_ERROR_FABRIC_NOT_READY, "the fabric is not ready"),
    GPURUN_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

#undef GPURUN_ERROR

const ErrorCode* find(CUresult result) noexcept {
  const ErrorCode* found =
      std::lower_bound(std::begin(kErrorCodes), std::end(kErrorCodes), result,
                       [](const ErrorCode& code, CUresult wanted) { return code.result < wanted; });
  return found != std::end(kErrorCodes) && found->result == result ? found : nullptr;
}

CUresult answer(const char* found, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = found;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

const char* error_name(CUresult result) noexcept {
  const ErrorCode* code = find(result);
  return code == nullptr ? nullptr : code->name;
}

const char* error_string(CUresult result) noexcept {
  const ErrorCode* code = find(result);
  return code == nullptr ? nullptr : code->text;
}

CUresult get_error_name(CUresult result, const char** text) noexcept {
  return answer(error_name(result), text);
}

CUresult get_error_string(CUresult result, const char** text) noexcept {
  return answer(error_string(result), text);
}

std::size_t error_code_count() noexcept { return std::size(kErrorCodes); }

CUresult error_code(std::size_t index) noexcept { return kErrorCodes[index].result; }

}  // namespace gpurun::driver_abi
