// Kernel facts: reads names, attributes and parameters from the driver, where it can report them.
#include "server/handlers/modules/kernel_facts.h"

#include <vector>

#include "protocol/limits.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {
namespace {

using protocol::KernelDescription;

// A bound for the number of kernels of one image that a driver reports.
constexpr unsigned kKernelsMax = 65'536;

template <typename T>
T as(void* value) {
  return reinterpret_cast<T>(value);
}

int parameter(const CudaDriver& driver, const DriverKernel& kernel, std::size_t index,
              std::size_t* offset, std::size_t* bytes) {
  return kernel.kind == HandleKind::kKernel
             ? GPURUN_DRIVER(driver, cuKernelGetParamInfo, as<CUkernel>(kernel.value), index,
                             offset, bytes)
             : GPURUN_DRIVER(driver, cuFuncGetParamInfo, as<CUfunction>(kernel.value), index,
                             offset, bytes);
}

// NVIDIA's driver reports the parameters of a library's kernel only on a thread that has a context
// (580: INVALID_CONTEXT without one). Any context will do, because the parameters are the same in
// each. A program may have no context current, or none at all, when it loads a library. Nearly
// every program has the primary one, so that is used. What is lent here is returned when this
// object ends.
class LentContext {
 public:
  LentContext(const CudaDriver& driver, CUdevice device) : driver_(driver), device_(device) {}
  LentContext(const LentContext&) = delete;
  LentContext& operator=(const LentContext&) = delete;
  ~LentContext() {
    if (!lent_) return;
    (void)GPURUN_DRIVER(driver_, cuCtxSetCurrent, CUcontext{nullptr});
    (void)GPURUN_DRIVER(driver_, cuDevicePrimaryCtxRelease_v2, device_);
  }

  // True: a context is current now, and there was none before.
  bool enter() {
    CUcontext context = nullptr;
    if (lent_ || GPURUN_DRIVER(driver_, cuCtxGetCurrent, &context) != CUDA_SUCCESS ||
        context != nullptr ||
        GPURUN_DRIVER(driver_, cuDevicePrimaryCtxRetain, &context, device_) != CUDA_SUCCESS) {
      return false;
    }
    lent_ = true;
    return GPURUN_DRIVER(driver_, cuCtxSetCurrent, context) == CUDA_SUCCESS;
  }

 private:
  const CudaDriver& driver_;
  const CUdevice device_;
  bool lent_ = false;
};

// False, and no parameters: the driver does not report all of them.
bool list_parameters(const CudaDriver& driver, const DriverKernel& kernel, LentContext& lent,
                     std::vector<protocol::KernelParameter>* parameters) {
  parameters->clear();
  for (std::size_t i = 0; i < protocol::kKernelParametersMax; ++i) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    int result = parameter(driver, kernel, i, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_CONTEXT && lent.enter()) {
      result = parameter(driver, kernel, i, &offset, &bytes);
    }
    // Manual, cuKernelGetParamInfo: INVALID_VALUE beyond the last parameter.
    if (result == CUDA_ERROR_INVALID_VALUE) return true;
    if (result != CUDA_SUCCESS) break;
    if (offset > limits::kKernelParameterBytesMax ||
        bytes > limits::kKernelParameterBytesMax - offset) {
      break;
    }
    parameters->push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes)});
  }
  parameters->clear();
  return false;
}

int attribute(const CudaDriver& driver, const DriverKernel& kernel, CUdevice device, int id,
              int* value) {
  const auto which = static_cast<CUfunction_attribute>(id);
  return kernel.kind == HandleKind::kKernel
             ? GPURUN_DRIVER(driver, cuKernelGetAttribute, value, which, as<CUkernel>(kernel.value),
                             device)
             : GPURUN_DRIVER(driver, cuFuncGetAttribute, value, which,
                             as<CUfunction>(kernel.value));
}

const char* name(const CudaDriver& driver, const DriverKernel& kernel) {
  const char* text = nullptr;
  const int result =
      kernel.kind == HandleKind::kKernel
          ? GPURUN_DRIVER(driver, cuKernelGetName, &text, as<CUkernel>(kernel.value))
          : GPURUN_DRIVER(driver, cuFuncGetName, &text, as<CUfunction>(kernel.value));
  return result == CUDA_SUCCESS ? text : nullptr;
}

// False: the driver cannot list them.
bool enumerate(const CudaDriver& driver, HandleKind kind, void* owner,
               std::vector<void*>* kernels) {
  unsigned count = 0;
  const bool library = kind == HandleKind::kLibrary;
  int result = library
                   ? GPURUN_DRIVER(driver, cuLibraryGetKernelCount, &count, as<CUlibrary>(owner))
                   : GPURUN_DRIVER(driver, cuModuleGetFunctionCount, &count, as<CUmodule>(owner));
  if (result != CUDA_SUCCESS || count > kKernelsMax) return false;
  kernels->resize(count);
  if (count == 0) return true;
  result = library ? GPURUN_DRIVER(driver, cuLibraryEnumerateKernels,
                                   reinterpret_cast<CUkernel*>(kernels->data()), count,
                                   as<CUlibrary>(owner))
                   : GPURUN_DRIVER(driver, cuModuleEnumerateFunctions,
                                   reinterpret_cast<CUfunction*>(kernels->data()), count,
                                   as<CUmodule>(owner));
  return result == CUDA_SUCCESS;
}

void describe(const CudaDriver& driver, const DriverKernel& kernel, CUdevice device,
              LentContext& lent, KernelDescription* description) {
  description->described = true;
  description->layout_known = list_parameters(driver, kernel, lent, &description->parameters);
  description->attributes.clear();
  for (int id = 0; id < static_cast<int>(protocol::kFunctionAttributes); ++id) {
    int value = 0;
    if (attribute(driver, kernel, device, id, &value) != CUDA_SUCCESS) break;
    description->attributes.push_back(value);
  }
}

}  // namespace

void describe_kernel(const CudaDriver& driver, const DriverKernel& kernel, CUdevice device,
                     KernelDescription* description) {
  LentContext lent(driver, device);
  describe(driver, kernel, device, lent, description);
}

bool parameters_of(const CudaDriver& driver, const DriverKernel& kernel,
                   std::vector<protocol::KernelParameter>* parameters) {
  LentContext lent(driver, 0);
  return list_parameters(driver, kernel, lent, parameters);
}

std::optional<KernelLayout> layout_of(const CudaDriver& driver, const DriverKernel& kernel) {
  LentContext lent(driver, 0);  // For nodes of graphs. A launch has a context.
  std::vector<protocol::KernelParameter> parameters;
  if (!list_parameters(driver, kernel, lent, &parameters)) return std::nullopt;
  return KernelLayout{protocol::layout_hash(parameters),
                      static_cast<std::uint32_t>(protocol::parameter_block_bytes(parameters))};
}

void list_kernels(const CudaDriver& driver, HandleKind kind, void* owner, CUdevice device,
                  std::size_t bytes_max, protocol::ImageOutcome* outcome) {
  std::vector<void*> kernels;
  outcome->complete = enumerate(driver, kind, owner, &kernels);
  if (!outcome->complete) return;
  const HandleKind each_kind =
      kind == HandleKind::kLibrary ? HandleKind::kKernel : HandleKind::kFunction;
  std::size_t bytes = 0;
  LentContext lent(driver, device);
  for (void* value : kernels) {
    const DriverKernel kernel{each_kind, value};
    KernelDescription description;
    const char* text = name(driver, kernel);
    if (text == nullptr) {
      outcome->complete = false;
      continue;
    }
    description.name = text;
    if (description.name.size() > limits::kStringBytesMax) {
      outcome->complete = false;
      continue;
    }
    if (outcome->kernels.size() < protocol::kDescribedKernelsMax) {
      describe(driver, kernel, device, lent, &description);
    }
    bytes += protocol::packed_bytes(description);
    if (bytes > bytes_max) {
      outcome->complete = false;
      return;
    }
    outcome->kernels.push_back(std::move(description));
  }
}

}  // namespace gpurun::server
