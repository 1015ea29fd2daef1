// Links: link states are created, given inputs, completed and destroyed on threads that may block,
// because a driver compiles in each of these calls.
#include "server/handlers/modules/links.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "protocol/calls/call.h"
#include "server/handlers/modules/modules.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::LinkReply;

LinkRegistry& book_of(const Call& call) { return HandlerState::of(call).links(); }

// The outputs of the driver call. The caller holds the mutex of `link`.
LinkReply reply_of(const Link& link, int result) {
  LinkReply reply;
  reply.result = result;
  reply.wall_time = link.jit.wall_time();
  reply.info_log_value = link.jit.info_log_value();
  reply.error_log_value = link.jit.error_log_value();
  reply.info_log = link.jit.info_log();
  reply.error_log = link.jit.error_log();
  return reply;
}

int answer(Call& call, const LinkReply& reply) {
  call.set_reply(protocol::pack(reply));
  return 0;
}

// Finds a live link state of the current context. Returns 0 or the CUresult.
int find_link(Call& call, std::uint64_t handle, std::shared_ptr<Link>* link) {
  const HandleTable::Found found = call.handles().find(handle, HandleKind::kLinkState);
  if (found.result != 0) return found.result;
  *link = book_of(call).find(handle);
  const bool here = *link != nullptr && (*link)->context == call.header().context;
  return here ? 0 : int{CUDA_ERROR_INVALID_HANDLE};
}

int create(Call& call) {
  const auto request = protocol::unpack_link_create(call.payload());
  if (!request.ok() || call.header().context == 0) return kErrorInvalidValue;
  const CudaDriver& driver = HandlerState::of(call).driver();
  auto link = std::make_shared<Link>(*request);
  link->context = call.header().context;
  const std::lock_guard lock(link->mutex);
  if (const int result = book_of(call).add(request->state, link); result != 0) return result;
  int result = GPURUN_DRIVER(driver, cuLinkCreate_v2, link->jit.count(), link->jit.options(),
                             link->jit.values(), &link->state);
  if (result == 0) {
    result = call.handles().bind(request->state, HandleKind::kLinkState,
                                 reinterpret_cast<std::uintptr_t>(link->state));
    if (result != 0) (void)GPURUN_DRIVER(driver, cuLinkDestroy, link->state);
  }
  if (result != 0) {
    link->state = nullptr;
    book_of(call).take(request->state);
  }
  return answer(call, reply_of(*link, result));
}

int add_data(Call& call) {
  const auto input = protocol::unpack_link_input(call.payload());
  if (!input.ok()) return kErrorInvalidValue;
  std::shared_ptr<Link> link;
  if (const int result = find_link(call, input->state, &link); result != 0) return result;
  const std::size_t bytes = input->data.empty() ? call.bulk_payload().size() : input->data.size();
  if (bytes == 0) return kErrorInvalidValue;
  if (const int result = book_of(call).count_input(input->state, bytes); result != 0) return result;
  // The driver takes the bytes as not const. It reads text up to its NUL, whatever its size says,
  // and bulk is followed by a NUL.
  Bytes copy;
  void* data = const_cast<std::byte*>(call.bulk_payload().data());
  if (!input->data.empty()) {
    copy.assign(input->data.begin(), input->data.end());
    copy.push_back(std::byte{0});
    data = copy.data();
  }
  JitArguments jit(input->options, 0, 0);
  const std::lock_guard lock(link->mutex);
  if (link->state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int result = GPURUN_DRIVER(HandlerState::of(call).driver(), cuLinkAddData_v2, link->state,
                                   static_cast<CUjitInputType>(input->type), data, bytes,
                                   input->named ? input->name.c_str() : nullptr, jit.count(),
                                   jit.options(), jit.values());
  return answer(call, reply_of(*link, result));
}

int complete_link(const CudaDriver& driver, Link& link) {
  void* image = nullptr;
  std::size_t bytes = 0;
  const int result = GPURUN_DRIVER(driver, cuLinkComplete, link.state, &image, &bytes);
  if (result != 0) return result;
  if (image == nullptr || bytes == 0 || bytes > limits::kImageBytesMax) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  link.image = image;
  link.image_bytes = bytes;
  return 0;
}

int complete(Call& call) {
  const auto request = protocol::unpack_link_complete(call.payload());
  if (!request.ok()) return kErrorInvalidValue;
  std::shared_ptr<Link> link;
  if (const int result = find_link(call, request->state, &link); result != 0) return result;
  const std::lock_guard lock(link->mutex);
  if (link->state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  int result = 0;
  if (request->offset == 0) {
    result = complete_link(HandlerState::of(call).driver(), *link);
  } else if (link->image == nullptr || request->offset >= link->image_bytes) {
    return kErrorInvalidValue;
  }
  LinkReply reply = reply_of(*link, result);
  if (result == 0) {
    reply.image_bytes = link->image_bytes;
    const auto at = static_cast<std::size_t>(request->offset);
    const std::size_t bytes =
        std::min(link->image_bytes - at, protocol::link_part_bytes_max(reply));
    reply.part = byte_view(static_cast<const std::byte*>(link->image) + at, bytes);
  }
  return answer(call, reply);
}

int destroy(Call& call) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) return kErrorInvalidValue;
  const std::shared_ptr<Link> link = book_of(call).find(unpacked.word(0));
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(link->mutex);
  if (link->state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  link->state = nullptr;
  book_of(call).take(unpacked.word(0));
  return HandlerState::of(call).dispatch().run(call).result;
}

// A client of ours waits for these steps, so others are refused.
template <int (*Step)(Call&)>
CallOutcome run_awaited(Call& call) {
  return call.awaited() ? CallOutcome::park(Step) : CallOutcome::done(kErrorInvalidValue);
}

CallOutcome run_destroy(Call& call) {
  const bool own_thread = call.header().order == protocol::Order::kOrderedHost;
  if (call.awaited() || own_thread) return CallOutcome::park(&destroy);
  return CallOutcome::done(kErrorInvalidValue);
}

}  // namespace

int LinkRegistry::add(std::uint64_t handle, std::shared_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  if (links_.size() >= limits::kLinkStatesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  return links_.emplace(handle, std::move(link)).second ? 0 : int{CUDA_ERROR_INVALID_HANDLE};
}

std::shared_ptr<Link> LinkRegistry::find(std::uint64_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(handle);
  return found == links_.end() ? nullptr : found->second;
}

int LinkRegistry::count_input(std::uint64_t handle, std::size_t bytes) {
  const std::size_t counted = std::max(bytes, limits::kLinkInputBytesMin);
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(handle);
  if (found == links_.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (counted > limits::kLinkBytesMax - bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes_ += counted;
  found->second->bytes += counted;
  return 0;
}

void LinkRegistry::take(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(handle);
  if (found == links_.end()) return;
  bytes_ -= found->second->bytes;
  links_.erase(found);
}

void LinkRegistry::end_context(std::uint64_t context, HandleTable& handles) {
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Link>>> ending;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : links_) {
      if (each.second->context == context) ending.push_back(each);
    }
  }
  for (const auto& [handle, link] : ending) {
    const std::lock_guard lock(link->mutex);
    if (link->state == nullptr) continue;
    (void)handles.erase(handle, HandleKind::kLinkState);
    (void)GPURUN_DRIVER(driver_, cuLinkDestroy, link->state);
    link->state = nullptr;
    take(handle);
  }
}

void add_link_handlers(Handlers& handlers) {
  set_handler(handlers, "cuLinkCreate_v2", &run_awaited<create>);
  set_handler(handlers, "cuLinkAddData_v2", &run_awaited<add_data>);
  set_handler(handlers, "cuLinkAddFile_v2", &refuse_file);
  set_handler(handlers, "cuLinkComplete", &run_awaited<complete>);
  set_handler(handlers, "cuLinkDestroy", &run_destroy);
}

}  // namespace gpurun::server
