// WrongStage: live objects, ended objects and right structures for wrong calls.
#include "kernels.h"
#include "wrong_call.h"

namespace gpurun::probe {

// Calls cuX and throws CallFailed when it does not succeed.
#define MUST(function, ...) must(CU(driver, function)(__VA_ARGS__), #function)

const char* const WrongStage::kernels = kKernels;
const char* const WrongStage::bad_ptx =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { nonsense; }\n";
const char* const WrongStage::future_ptx = ".version 99.0\n.target sm_75\n.address_size 64\n";
const char* const WrongStage::broken_ptx =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { mov.u32 %a, 1; ret; }\n";
const char* const WrongStage::no_such_sm =
    ".version 7.0\n.target sm_999\n.address_size 64\n.visible .entry k() { ret; }\n";
unsigned char WrongStage::foreign_elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33};

WrongStage::WrongStage(const Driver& opened, Level level) : Stage(opened, level) {
  if (level != Level::kLost) return;
  graph_exec = exec();
  CUfunction fault = nullptr;
  MUST(cuModuleGetFunction, &fault, module, "bad_address");
  MUST(cuLaunchKernel, fault, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  if (CU(driver, cuStreamSynchronize)(stream) == CUDA_SUCCESS)
    throw CallFailed{"a kernel that faults", CUDA_SUCCESS};
}

CUgraph WrongStage::graph() {
  CUgraph made = nullptr;
  MUST(cuGraphCreate, &made, 0);
  return made;
}
CUgraphNode WrongStage::node(CUgraph of) {
  CUgraphNode made = nullptr;
  MUST(cuGraphAddEmptyNode, &made, of, nullptr, 0);
  return made;
}
CUgraphExec WrongStage::exec() {
  CUgraph from = graph();
  node(from);
  CUgraphExec made = nullptr;
  MUST(cuGraphInstantiateWithFlags, &made, from, 0);
  return made;
}
CUlibrary WrongStage::library() {
  CUlibrary made = nullptr;
  MUST(cuLibraryLoadData, &made, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  return made;
}
CUkernel WrongStage::kernel() {
  CUkernel made = nullptr;
  MUST(cuLibraryGetKernel, &made, library(), "with_five");
  return made;
}
CUmemoryPool WrongStage::pool() {
  CUmemoryPool made = nullptr;
  const CUmemPoolProps properties = right_pool_properties();
  MUST(cuMemPoolCreate, &made, &properties);
  return made;
}
void* WrongStage::pinned() {
  void* made = nullptr;
  MUST(cuMemHostAlloc, &made, 4096, 0);
  return made;
}
char* WrongStage::registered() {
  MUST(cuMemHostRegister_v2, host, 4096, 0);
  return host;
}
CUdeviceptr WrongStage::reserved() {
  CUdeviceptr made = 0;
  MUST(cuMemAddressReserve, &made, granule, 0, 0, 0);
  return made;
}
CUmemGenericAllocationHandle WrongStage::created() {
  CUmemGenericAllocationHandle made = 0;
  const CUmemAllocationProp properties = right_properties();
  MUST(cuMemCreate, &made, granule, &properties, 0);
  return made;
}
CUdeviceptr WrongStage::mapped() {
  const CUdeviceptr at = reserved();
  MUST(cuMemMap, at, granule, 0, created(), 0);
  const CUmemAccessDesc all_access = right_access();
  MUST(cuMemSetAccess, at, granule, &all_access, 1);
  return at;
}

CUcontext WrongStage::other_context() {
  if (second_ != nullptr) return second_;
  MUST(cuCtxCreate_v2, &second_, 0, device);
  MUST(cuCtxPopCurrent_v2, nullptr);
  return second_;
}
void WrongStage::end_other_context() {
  if (second_ != nullptr) (void)CU(driver, cuCtxDestroy_v2)(second_);
  second_ = nullptr;
}
CUstream WrongStage::other_stream() {
  CUstream made = nullptr;
  MUST(cuCtxPushCurrent_v2, other_context());
  MUST(cuStreamCreate, &made, CU_STREAM_NON_BLOCKING);
  MUST(cuCtxPopCurrent_v2, nullptr);
  return made;
}
CUevent WrongStage::other_event() {
  CUevent made = nullptr;
  MUST(cuCtxPushCurrent_v2, other_context());
  MUST(cuEventCreate, &made, 0);
  MUST(cuCtxPopCurrent_v2, nullptr);
  return made;
}
CUmodule WrongStage::other_module() {
  CUmodule made = nullptr;
  MUST(cuCtxPushCurrent_v2, other_context());
  MUST(cuModuleLoadData, &made, kKernels);
  MUST(cuCtxPopCurrent_v2, nullptr);
  return made;
}
CUlinkState WrongStage::link() {
  CUlinkState made = nullptr;
  MUST(cuLinkCreate_v2, 0, nullptr, nullptr, &made);
  MUST(cuLinkAddData_v2, made, CU_JIT_INPUT_PTX, const_cast<char*>(kKernels), sizeof kKernels,
       nullptr, 0, nullptr, nullptr);
  return made;
}
CUlinkState WrongStage::completed() {
  CUlinkState made = link();
  void* image = nullptr;
  MUST(cuLinkComplete, made, &image, nullptr);
  return made;
}
CUevent WrongStage::event_without_time() {
  CUevent made = nullptr;
  MUST(cuEventCreate, &made, CU_EVENT_DISABLE_TIMING);
  MUST(cuEventRecord, made, stream);
  return made;
}
CUdeviceptr WrongStage::async_memory() {
  CUdeviceptr made = 0;
  MUST(cuMemAllocAsync, &made, 4096, stream);
  return made;
}

void** WrongStage::five() {
  static CUdeviceptr address;
  static char small = 1;
  static double value = 1;
  alignas(16) static char structure[40];
  static unsigned short last = 3;
  static void* list[] = {&address, &small, &value, structure, &last};
  address = memory;
  return list;
}
void** WrongStage::short_extra() {
  static std::size_t bytes = 4;
  static void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, nullptr, CU_LAUNCH_PARAM_BUFFER_SIZE,
                          &bytes, CU_LAUNCH_PARAM_END};
  extra[1] = host;
  return extra;
}

CUstream WrongStage::capturing() { return capturing(CU_STREAM_CAPTURE_MODE_RELAXED); }
CUstream WrongStage::capturing(unsigned mode) {
  MUST(cuStreamBeginCapture_v2, stream, number_as<CUstreamCaptureMode>(mode));
  MUST(cuMemsetD8Async, memory, 0x5a, 16, stream);
  return stream;
}
CUstream WrongStage::invalidated() {
  capturing();
  (void)CU(driver, cuStreamSynchronize)(stream);
  return stream;
}
CUevent WrongStage::captured_event() {
  capturing();
  MUST(cuEventRecord, event, stream);
  return event;
}

CUstream WrongStage::destroyed(CUstream ended) {
  MUST(cuStreamDestroy_v2, ended);
  return ended;
}
CUevent WrongStage::destroyed(CUevent ended) {
  MUST(cuEventDestroy_v2, ended);
  return ended;
}
CUgraph WrongStage::destroyed(CUgraph ended) {
  MUST(cuGraphDestroy, ended);
  return ended;
}
CUgraphExec WrongStage::destroyed(CUgraphExec ended) {
  MUST(cuGraphExecDestroy, ended);
  return ended;
}
CUcontext WrongStage::destroyed(CUcontext ended) {
  MUST(cuCtxDestroy_v2, ended);
  if (ended == second_) second_ = nullptr;
  return ended;
}
CUmemoryPool WrongStage::destroyed(CUmemoryPool ended) {
  MUST(cuMemPoolDestroy, ended);
  return ended;
}
CUlinkState WrongStage::destroyed(CUlinkState ended) {
  MUST(cuLinkDestroy, ended);
  return ended;
}
CUmodule WrongStage::unloaded(CUmodule ended) {
  MUST(cuModuleUnload, ended);
  return ended;
}
CUlibrary WrongStage::unloaded(CUlibrary ended) {
  MUST(cuLibraryUnload, ended);
  return ended;
}
CUdeviceptr WrongStage::freed(CUdeviceptr ended) {
  MUST(cuMemFree_v2, ended);
  return ended;
}
CUdeviceptr WrongStage::freed_async(CUdeviceptr ended) {
  MUST(cuMemFreeAsync, ended, stream);
  MUST(cuStreamSynchronize, stream);
  return ended;
}
void* WrongStage::freed_host(void* ended) {
  MUST(cuMemFreeHost, ended);
  return ended;
}
char* WrongStage::unregistered(char* ended) {
  MUST(cuMemHostUnregister, ended);
  return ended;
}
CUmemGenericAllocationHandle WrongStage::released(CUmemGenericAllocationHandle ended) {
  MUST(cuMemRelease, ended);
  return ended;
}
CUdeviceptr WrongStage::unmapped(CUdeviceptr ended) {
  MUST(cuMemUnmap, ended, granule);
  return ended;
}

CUDA_MEMCPY2D WrongStage::right_copy_2d() const {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.dstDevice = memory + 65536;
  copy.srcPitch = copy.dstPitch = 64;
  copy.WidthInBytes = copy.Height = 16;
  return copy;
}
CUDA_MEMCPY3D WrongStage::right_copy_3d() const {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.dstDevice = memory + 65536;
  copy.srcPitch = copy.dstPitch = 64;
  copy.srcHeight = copy.dstHeight = 4;
  copy.WidthInBytes = 16;
  copy.Height = copy.Depth = 4;
  return copy;
}
CUmemAllocationProp WrongStage::right_properties() const {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}
CUmemPoolProps WrongStage::right_pool_properties() const {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}
CUmemAccessDesc WrongStage::right_access() const {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}
CUlaunchConfig WrongStage::right_config() const {
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return config;
}
CUDA_KERNEL_NODE_PARAMS WrongStage::right_kernel_node() const {
  CUDA_KERNEL_NODE_PARAMS node = {};
  node.func = empty;
  node.gridDimX = node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  return node;
}
CUDA_MEMSET_NODE_PARAMS WrongStage::right_memset_node() const {
  CUDA_MEMSET_NODE_PARAMS node = {};
  node.dst = memory;
  node.elementSize = 1;
  node.width = 16;
  node.height = 1;
  return node;
}

}  // namespace gpurun::probe
