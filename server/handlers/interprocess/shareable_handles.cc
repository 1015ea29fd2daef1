// ShareableHandles: descriptors to and from the daemon. Data from another worker is untrusted, and
// the driver checks its descriptor.
#include "server/handlers/interprocess/shareable_handles.h"

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "driver_abi/opcodes.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {

namespace opcode = driver_abi::opcode;
using protocol::ExportStep;
using protocol::SharingHandle;

namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// The content of an entry of the exchange: a magic number. Its size differs from those of other
// entries.
constexpr std::uint64_t kAllocation = 0x6c61'636f'6c6c'6121, kPool = 0x706f'6f6c'2121'2121;

void* as_pointer(const UniqueFd& file) {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get()));
}

}  // namespace

std::atomic<ShareableHandles*> ShareableHandles::current_{nullptr};

ShareableHandles::ShareableHandles(const CudaDriver& driver) : driver_(driver) { current_ = this; }

ShareableHandles::~ShareableHandles() {
  ShareableHandles* ours = this;
  current_.compare_exchange_strong(ours, nullptr);
}

int ShareableHandles::put(int result, int descriptor, std::uint64_t magic, SharingHandle* token) {
  if (result != 0) return result;
  const UniqueFd file(descriptor);
  return exchange_->put(bytes_of(magic), {file.get()}, token) ? 0 : kErrorOutOfMemory;
}

int ShareableHandles::get(const SharingHandle& token, std::uint64_t magic, UniqueFd* file) const {
  if (exchange_ == nullptr) return kErrorNotSupported;
  Bytes content;
  std::vector<UniqueFd> files;
  if (!exchange_->get(token, &content, &files) || content.size() != sizeof magic ||
      files.size() != 1 || std::memcmp(content.data(), &magic, sizeof magic) != 0) {
    return kErrorInvalidValue;
  }
  *file = std::move(files.front());
  return 0;
}

int ShareableHandles::begin_export(CUmemGenericAllocationHandle memory, SharingHandle* token) {
  if (exchange_ == nullptr) return kErrorNotSupported;
  const std::lock_guard lock(mutex_);
  int number = -1;
  int result =
      GPURUN_DRIVER(driver_, cuMemExportToShareableHandle, &number, memory, kDescriptor, 0);
  result = put(result, number, kAllocation, token);
  if (result != 0) return result;
  tokens_.emplace(*token, memory);
  ++exported_[memory].tokens;
  return 0;
}

int ShareableHandles::begin_export(CUmemoryPool pool, SharingHandle* token) {
  if (exchange_ == nullptr) return kErrorNotSupported;
  const std::lock_guard lock(mutex_);
  int number = -1;
  int result =
      GPURUN_DRIVER(driver_, cuMemPoolExportToShareableHandle, &number, pool, kDescriptor, 0);
  result = put(result, number, kPool, token);
  if (result == 0) tokens_.emplace(*token, 0);
  return result;
}

int ShareableHandles::end_export(const SharingHandle& token) {
  const std::lock_guard lock(mutex_);
  const auto found = tokens_.find(token);
  if (found == tokens_.end()) return kErrorInvalidValue;
  exchange_->drop(token);
  const CUmemGenericAllocationHandle memory = found->second;
  tokens_.erase(found);
  if (memory == 0) return 0;
  const auto exported = exported_.find(memory);
  if (--exported->second.tokens > 0) return 0;
  int result = 0;
  for (unsigned i = 0; i < exported->second.withheld; ++i) {
    const int each = GPURUN_DRIVER(driver_, cuMemRelease, memory);
    if (result == 0) result = each;
  }
  exported_.erase(exported);
  return result;
}

int ShareableHandles::import(const SharingHandle& token, CUmemGenericAllocationHandle* memory,
                             int* device) {
  UniqueFd file;
  int result = get(token, kAllocation, &file);
  if (result != 0) return result;
  result =
      GPURUN_DRIVER(driver_, cuMemImportFromShareableHandle, memory, as_pointer(file), kDescriptor);
  if (result != 0) return result;
  CUmemAllocationProp properties{};
  const int known =
      GPURUN_DRIVER(driver_, cuMemGetAllocationPropertiesFromHandle, &properties, *memory);
  if (known != 0 || properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    (void)release(*memory);
    return known != 0 ? known : kErrorInvalidValue;
  }
  *device = properties.location.id;
  return 0;
}

int ShareableHandles::import_pool(const SharingHandle& token, CUmemoryPool* pool) {
  UniqueFd file;
  const int result = get(token, kPool, &file);
  if (result != 0) return result;
  return GPURUN_DRIVER(driver_, cuMemPoolImportFromShareableHandle, pool, as_pointer(file),
                       kDescriptor, 0);
}

int ShareableHandles::release(CUmemGenericAllocationHandle memory) {
  const std::lock_guard lock(mutex_);
  const auto exported = exported_.find(memory);
  if (exported == exported_.end()) return GPURUN_DRIVER(driver_, cuMemRelease, memory);
  ++exported->second.withheld;
  return 0;
}

namespace {

CUresult release_memory(CUmemGenericAllocationHandle memory) {
  ShareableHandles* const ours = ShareableHandles::current();
  return static_cast<CUresult>(ours == nullptr ? kErrorNotSupported : ours->release(memory));
}

// Copies the payload if its size is exactly right.
template <typename Payload>
bool copy_payload(const Call& call, Payload* payload) {
  static_assert(std::is_trivially_copyable_v<Payload>);
  if (call.header().form != protocol::Form::kRaw || call.payload().size() != sizeof *payload) {
    return false;
  }
  std::memcpy(payload, call.payload().data(), sizeof *payload);
  return true;
}

int begin(ShareableHandles& ours, Call& call, HandleKind kind, std::uint64_t object,
          SharingHandle* token) {
  const HandleTable::Found found = call.handles().find(object, kind);
  if (found.result != 0) return found.result;
  if (kind == HandleKind::kAllocation) return ours.begin_export(found.value, token);
  return ours.begin_export(reinterpret_cast<CUmemoryPool>(found.value), token);
}

template <HandleKind kKind>
int export_now(Call& call) {
  ShareableHandles& ours = HandlerState::of(call).shareable_handles();
  protocol::ExportRequest request;
  if (!copy_payload(call, &request)) return kErrorInvalidValue;
  if (request.step == ExportStep::kEnd) return ours.end_export(request.token);
  if (request.step != ExportStep::kBegin || !call.awaited()) return kErrorInvalidValue;
  SharingHandle token{};
  const int result = begin(ours, call, kKind, request.object, &token);
  if (result == 0) call.set_reply(bytes_of(token));
  return result;
}

int import_now(Call& call) {
  ShareableHandles& ours = HandlerState::of(call).shareable_handles();
  protocol::ImportRequest request;
  if (!copy_payload(call, &request) || !call.awaited()) return kErrorInvalidValue;
  CUmemGenericAllocationHandle memory = 0;
  int device = -1;
  if (const int result = ours.import(request.token, &memory, &device); result != 0) return result;
  protocol::ImportGrant grant;
  grant.device = static_cast<std::uint32_t>(device);
  grant.object = call.handles().client_handle_of(memory, HandleKind::kAllocation);
  if (grant.object != 0) {
    call.handles().retain(grant.object);
  } else {
    grant.object = request.minted;
    const int result = call.handles().bind(request.minted, HandleKind::kAllocation, memory);
    if (result != 0) {
      (void)ours.release(memory);
      return result;
    }
  }
  call.set_reply(bytes_of(grant));
  return 0;
}

int import_pool_now(Call& call) {
  HandlerState& state = HandlerState::of(call);
  protocol::ImportRequest request;
  if (!copy_payload(call, &request) || !call.awaited()) return kErrorInvalidValue;
  CUmemoryPool pool = nullptr;
  int result = state.shareable_handles().import_pool(request.token, &pool);
  if (result != 0) return result;
  result = call.handles().bind(request.minted, HandleKind::kMemoryPool,
                               reinterpret_cast<std::uintptr_t>(pool));
  if (result != 0) {
    (void)GPURUN_DRIVER(state.driver(), cuMemPoolDestroy, pool);
    return result;
  }
  protocol::ImportGrant grant;
  grant.object = request.minted;
  call.set_reply(bytes_of(grant));
  return 0;
}

// The daemon is waited for on a helper thread.
template <int (*Now)(Call&)>
CallOutcome run(Call& call) {
  if (!call.awaited() && call.header().order != protocol::Order::kOrderedHost) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  return CallOutcome::park(Now);
}

}  // namespace

void* ShareableHandles::substitute(std::uint16_t code) {
  return code == opcode::cuMemRelease ? reinterpret_cast<void*>(&release_memory) : nullptr;
}

void add_shareable_handle_handlers(Handlers& handlers) {
  set_handler(handlers, "cuMemExportToShareableHandle", &run<export_now<HandleKind::kAllocation>>);
  set_handler(handlers, "cuMemImportFromShareableHandle", &run<import_now>);
  set_handler(handlers, "cuMemPoolExportToShareableHandle",
              &run<export_now<HandleKind::kMemoryPool>>);
  set_handler(handlers, "cuMemPoolImportFromShareableHandle", &run<import_pool_now>);
}

}  // namespace gpurun::server
