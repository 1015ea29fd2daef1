// Interprocess: sharing by way of the daemon. Data from another worker about its memory is
// untrusted, and is checked before the driver gets it.
#include "server/handlers/interprocess/interprocess.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "driver_abi/opcodes.h"
#include "protocol/limits.h"
#include "server/driver/snapshot.h"
#include "server/handlers/memory/device_windows.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {

namespace opcode = driver_abi::opcode;
using protocol::OpenGrant;
using protocol::SharingHandle;

enum class SharedKind : std::uint32_t { kPieces = 1, kDriverMemory = 2, kDriverEvent = 3 };

inline constexpr std::size_t kSharedPiecesMax = 40;

// The content of an entry of the exchange.
struct SharedFacts {
  SharedKind kind = SharedKind::kPieces;
  std::uint32_t pieces = 0;
  std::uint64_t offset = 0;  // Within all of the pieces.
  std::uint64_t bytes = 0;
  std::uint8_t device[16] = {};         // cuDeviceGetUuid.
  std::uint8_t driver_handle[64] = {};  // For what the driver shares itself.
  std::uint64_t piece_bytes[kSharedPiecesMax] = {};
};
static_assert(sizeof(SharedFacts) <= kExchangeContentBytes);

namespace {

// One file may come along: the target of the emulated device's handle, which a confined worker
// could not open.
bool is_sound(const SharedFacts& facts, const std::vector<UniqueFd>& files) {
  if (facts.kind == SharedKind::kDriverEvent) return files.size() <= 1;
  if (facts.bytes == 0 || facts.bytes > limits::kWindowBytesMax) return false;
  if (facts.kind == SharedKind::kDriverMemory) return files.size() <= 1;
  if (facts.kind != SharedKind::kPieces || facts.pieces == 0 || facts.pieces > kSharedPiecesMax ||
      files.size() != facts.pieces) {
    return false;
  }
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < facts.pieces; ++i) {
    if (facts.piece_bytes[i] > limits::kWindowBytesMax - sum) return false;
    sum += facts.piece_bytes[i];
  }
  return facts.offset <= sum && facts.bytes <= sum - facts.offset;
}

std::vector<int> numbers_of(const std::vector<DeviceWindow::SharedPiece>& pieces) {
  std::vector<int> numbers;
  for (const auto& piece : pieces) numbers.push_back(piece.memory.get());
  return numbers;
}

}  // namespace

std::atomic<Interprocess*> Interprocess::current_{nullptr};

Interprocess::Interprocess(const CudaDriver& driver) : driver_(driver) { current_ = this; }

Interprocess::~Interprocess() {
  Interprocess* ours = this;
  current_.compare_exchange_strong(ours, nullptr);
}

int Interprocess::put(SharedFacts& facts, const std::vector<int>& files, SharingHandle* handle) {
  if (exchange_->put(bytes_of(facts), files, handle)) return 0;
  return kErrorOutOfMemory;
}

int Interprocess::share(const protocol::ShareRequest& request, DeviceWindow& window,
                        SharingHandle* handle) {
  const std::lock_guard lock(mutex_);
  const auto known = exports_.find(request.address);
  if (known != exports_.end() && known->second.bytes == request.bytes) {
    *handle = known->second.handle;
    return 0;
  }
  SharedFacts facts;
  facts.bytes = request.bytes;
  int result = 0;
  std::vector<DeviceWindow::SharedPiece> pieces;
  std::vector<int> files;
  if (window.reaches(request.address)) {
    if (exchange_ == nullptr) return kErrorNotSupported;
    result = window.share(request.address, request.bytes, &pieces, &facts.offset);
    if (result != 0) return result;
    if (pieces.size() > kSharedPiecesMax) return kErrorOutOfMemory;
    facts.pieces = static_cast<std::uint32_t>(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) facts.piece_bytes[i] = pieces[i].bytes;
    files = numbers_of(pieces);
  } else {
    facts.kind = SharedKind::kDriverMemory;
    CUipcMemHandle driver_handle{};
    result = GPURUN_DRIVER(driver_, cuIpcGetMemHandle, &driver_handle, request.address);
    if (result != 0) return result;
    std::memcpy(facts.driver_handle, &driver_handle, sizeof facts.driver_handle);
    if (exchange_ == nullptr) {
      std::memcpy(handle->data(), &driver_handle, handle->size());
      return 0;
    }
    const driver_abi::EmulatedView* const view = emulated_view(driver_);
    if (view != nullptr) files.push_back(view->ipc_file(&driver_handle));
  }
  CUuuid uuid{};
  result = GPURUN_DRIVER(driver_, cuDeviceGetUuid, &uuid, static_cast<int>(request.device));
  if (result == 0) {
    std::memcpy(facts.device, &uuid, sizeof facts.device);
    result = put(facts, files, handle);
  }
  if (result != 0) return result;
  if (known != exports_.end()) exchange_->drop(known->second.handle);
  exports_[request.address] = {request.bytes, *handle};
  return 0;
}

void Interprocess::withdraw(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = exports_.find(address);
  if (found == exports_.end()) return;
  if (exchange_ != nullptr) exchange_->drop(found->second.handle);
  exports_.erase(found);
}

// Needs the mutex.
bool Interprocess::is_own(const SharingHandle& handle) const {
  return std::any_of(exports_.begin(), exports_.end(),
                     [&](const auto& each) { return each.second.handle == handle; }) ||
         std::any_of(events_.begin(), events_.end(),
                     [&](const auto& each) { return each.second == handle; });
}

// -1: not here.
int Interprocess::device_of(const std::uint8_t* uuid) const {
  int devices = 0;
  (void)GPURUN_DRIVER(driver_, cuDeviceGetCount, &devices);
  for (int device = 0; device < devices; ++device) {
    CUuuid own{};
    if (GPURUN_DRIVER(driver_, cuDeviceGetUuid, &own, device) == 0 &&
        std::memcmp(&own, uuid, sizeof own) == 0) {
      return device;
    }
  }
  return -1;
}

int Interprocess::open_by_driver(const void* driver_handle, unsigned flags,
                                 OpenGrant* grant) const {
  CUipcMemHandle handle;
  std::memcpy(&handle, driver_handle, sizeof handle);
  CUdeviceptr address = 0;
  const int result = GPURUN_DRIVER(driver_, cuIpcOpenMemHandle_v2, &address, handle, flags);
  if (result == 0) grant->address = address;
  return result;
}

int Interprocess::open_new(HandlerState& state, const protocol::OpenRequest& request, int device,
                           Opening* opening) {
  OpenGrant& grant = opening->grant;
  grant.device = static_cast<std::uint32_t>(device);
  if (exchange_ == nullptr) {
    const int result = open_by_driver(request.handle.data(), request.flags, &grant);
    if (result != 0) return result;
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    (void)GPURUN_DRIVER(driver_, cuMemGetAddressRange_v2, &base, &bytes, grant.address);
    grant.bytes = bytes;
    return 0;
  }
  Bytes content;
  std::vector<UniqueFd> files;
  SharedFacts facts;
  if (!exchange_->get(request.handle, &content, &files) || content.size() != sizeof facts) {
    return kErrorInvalidValue;
  }
  std::memcpy(&facts, content.data(), sizeof facts);
  if (facts.kind == SharedKind::kDriverEvent || !is_sound(facts, files)) return kErrorInvalidValue;
  const int owner = device_of(facts.device);
  DeviceWindow* const window = state.window(owner);
  if (window == nullptr) return CUDA_ERROR_MAP_FAILED;
  grant.device = static_cast<std::uint32_t>(owner);
  grant.bytes = facts.bytes;
  if (facts.kind == SharedKind::kDriverMemory) {
    const driver_abi::EmulatedView* const view = emulated_view(driver_);
    if (view != nullptr && !files.empty()) {
      view->take_ipc_file(facts.driver_handle, files.front().get());
    }
    return open_by_driver(facts.driver_handle, request.flags, &grant);
  }
  std::vector<DeviceWindow::SharedPiece> pieces;
  for (std::uint32_t i = 0; i < facts.pieces; ++i) {
    pieces.push_back({std::move(files[i]), facts.piece_bytes[i]});
  }
  protocol::CreditRequest wish;
  if (owner == device) {
    wish.wished_window = request.wished_window;
    wish.window_bytes = request.window_bytes;
  }
  protocol::CreditGrant placed;
  std::uint64_t at = 0;
  const int result = window->adopt(wish, pieces, &placed, &at);
  if (result != 0) return result;
  grant.window = owner == device ? placed.window : 0;
  grant.window_bytes = owner == device ? placed.window_bytes : 0;
  grant.address = at + facts.offset;
  opening->in_window = true;
  opening->start = at;
  return 0;
}

int Interprocess::open(HandlerState& state, const protocol::OpenRequest& request,
                       std::uint64_t context, int device, OpenGrant* grant) {
  const std::lock_guard lock(mutex_);
  if (is_own(request.handle)) return kErrorInvalidContext;
  const std::pair key(request.handle, context);
  if (const auto known = openings_.find(key); known != openings_.end()) {
    ++known->second.count;
    *grant = known->second.grant;
    return 0;
  }
  if (openings_.size() >= limits::kSharedOpeningsMax) return kErrorOutOfMemory;
  Opening opening;
  opening.count = 1;
  const int result = open_new(state, request, device, &opening);
  if (result != 0) return result;
  *grant = opening.grant;
  openings_.emplace(key, opening);
  return 0;
}

// The work of the context is complete.
int Interprocess::close(HandlerState& state, const protocol::CloseRequest& request,
                        protocol::CloseReply* reply) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(openings_.begin(), openings_.end(), [&](const auto& each) {
    return each.second.grant.address == request.address;
  });
  if (found == openings_.end()) return kErrorInvalidValue;
  if (request.all == 0 && --found->second.count > 0) {
    reply->left = found->second.count;
    return 0;
  }
  const Opening opening = found->second;
  openings_.erase(found);
  if (!opening.in_window) {
    // The driver's mapping for a context has ended with the context.
    return request.all != 0 ? 0 : GPURUN_DRIVER(driver_, cuIpcCloseMemHandle, request.address);
  }
  DeviceWindow* const window = state.window(static_cast<int>(opening.grant.device));
  return window == nullptr ? kErrorInvalidValue : window->release(opening.start);
}

int Interprocess::share_event(CUevent event, CUipcEventHandle* handle) {
  const int result = GPURUN_DRIVER(driver_, cuIpcGetEventHandle, handle, event);
  if (result != 0 || exchange_ == nullptr) return result;
  const std::lock_guard lock(mutex_);
  SharingHandle shared{};
  SharedFacts facts;
  facts.kind = SharedKind::kDriverEvent;
  std::memcpy(facts.driver_handle, handle, sizeof facts.driver_handle);
  const auto known = events_.find(event);
  if (known != events_.end()) {
    shared = known->second;
  } else {
    std::vector<int> files;
    const driver_abi::EmulatedView* const view = emulated_view(driver_);
    if (view != nullptr) files.push_back(view->ipc_file(handle));
    if (const int failed = put(facts, files, &shared); failed != 0) return failed;
    events_.emplace(event, shared);
  }
  std::memcpy(handle, shared.data(), shared.size());
  return 0;
}

int Interprocess::destroy_event(CUevent event) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = events_.find(event);
    if (found != events_.end()) {
      exchange_->drop(found->second);
      events_.erase(found);
    }
  }
  return GPURUN_DRIVER(driver_, cuEventDestroy_v2, event);
}

int Interprocess::open_event(const CUipcEventHandle& handle, CUevent* event) {
  if (exchange_ == nullptr) return GPURUN_DRIVER(driver_, cuIpcOpenEventHandle, event, handle);
  const std::lock_guard lock(mutex_);
  SharingHandle shared{};
  std::memcpy(shared.data(), &handle, shared.size());
  if (is_own(shared)) return kErrorInvalidContext;
  Bytes content;
  std::vector<UniqueFd> files;
  SharedFacts facts;
  if (!exchange_->get(shared, &content, &files) || content.size() != sizeof facts) {
    return kErrorInvalidValue;
  }
  std::memcpy(&facts, content.data(), sizeof facts);
  if (facts.kind != SharedKind::kDriverEvent || !is_sound(facts, files)) return kErrorInvalidValue;
  const driver_abi::EmulatedView* const view = emulated_view(driver_);
  if (view != nullptr && !files.empty()) {
    view->take_ipc_file(facts.driver_handle, files.front().get());
  }
  // Closed before the driver locks the file for this process. Closing any descriptor of a file
  // releases all locks of the process on it (fcntl(2)), and the other processes would think that it
  // is dead.
  files.clear();
  CUipcEventHandle theirs;
  std::memcpy(&theirs, facts.driver_handle, sizeof theirs);
  return GPURUN_DRIVER(driver_, cuIpcOpenEventHandle, event, theirs);
}

namespace {

CUresult get_event_handle(CUipcEventHandle* handle, CUevent event) {
  Interprocess* const ours = Interprocess::current();
  return static_cast<CUresult>(ours == nullptr ? kErrorNotSupported
                                               : ours->share_event(event, handle));
}

CUresult end_event(CUevent event) {
  Interprocess* const ours = Interprocess::current();
  return static_cast<CUresult>(ours == nullptr ? kErrorNotSupported : ours->destroy_event(event));
}

CUresult open_event_handle(CUevent* event, CUipcEventHandle handle) {
  Interprocess* const ours = Interprocess::current();
  return static_cast<CUresult>(ours == nullptr ? kErrorNotSupported
                                               : ours->open_event(handle, event));
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

int share_now(Call& call) {
  HandlerState& state = HandlerState::of(call);
  protocol::ShareRequest request;
  if (!copy_payload(call, &request)) return kErrorInvalidValue;
  if (request.bytes == 0) {
    state.interprocess().withdraw(request.address);
    return 0;
  }
  DeviceWindow* const window = state.window(static_cast<int>(request.device));
  if (window == nullptr) return kErrorInvalidValue;
  SharingHandle handle{};
  const int result = state.interprocess().share(request, *window, &handle);
  if (result == 0) call.set_reply(bytes_of(handle));
  return result;
}

int open_now(Call& call) {
  HandlerState& state = HandlerState::of(call);
  protocol::OpenRequest request;
  CUdevice device = -1;
  if (!copy_payload(call, &request)) return kErrorInvalidValue;
  if (const int result = GPURUN_DRIVER(state.driver(), cuCtxGetDevice, &device); result != 0) {
    return result;
  }
  OpenGrant grant;
  const int result =
      state.interprocess().open(state, request, call.header().context, device, &grant);
  if (result == 0) call.set_reply(bytes_of(grant));
  return result;
}

int close_now(Call& call) {
  HandlerState& state = HandlerState::of(call);
  protocol::CloseRequest request;
  if (!copy_payload(call, &request)) return kErrorInvalidValue;
  if (call.driver_context() != nullptr) {
    if (const int result = call.driver().cuCtxSynchronize(); result != 0) return result;
  }
  protocol::CloseReply reply;
  const int result = state.interprocess().close(state, request, &reply);
  if (result == 0) call.set_reply(bytes_of(reply));
  return result;
}

// The daemon or the device is waited for on a helper thread.
template <int (*Now)(Call&)>
CallOutcome run(Call& call) {
  if (!call.awaited() && call.header().order != protocol::Order::kOrderedHost) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  return CallOutcome::park(Now);
}

}  // namespace

void* Interprocess::substitute(std::uint16_t code) {
  if (code == opcode::cuIpcGetEventHandle) return reinterpret_cast<void*>(&get_event_handle);
  if (code == opcode::cuEventDestroy_v2) return reinterpret_cast<void*>(&end_event);
  if (code == opcode::cuIpcOpenEventHandle) return reinterpret_cast<void*>(&open_event_handle);
  return nullptr;
}

void add_interprocess_handlers(Handlers& handlers) {
  set_handler(handlers, "cuIpcGetMemHandle", &run<share_now>);
  set_handler(handlers, "cuIpcOpenMemHandle_v2", &run<open_now>);
  set_handler(handlers, "cuIpcCloseMemHandle", &run<close_now>);
}

}  // namespace gpurun::server
