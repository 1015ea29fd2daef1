// Forward: how a hand-written function reaches its thread's lane and the worker.
#include "client/interpose/call/forward.h"

#include "base/log.h"
#include "client/interpose/call/refusals.h"
#include "protocol/calls/call.h"

namespace gpurun::client::interpose {
namespace {

int packed(const Status& status) {
  if (status.ok()) return 0;
  return status.code() == Code::kCuda ? status.cuda_error() : int{CUDA_ERROR_INVALID_VALUE};
}

}  // namespace

int EntryContext::enter() noexcept {
  if (const int result = ready(&process); result != 0) return result;
  lane = Lane::current();
  return lane == nullptr ? int{CUDA_ERROR_OUT_OF_MEMORY} : 0;
}

int EntryContext::enter_context() noexcept {
  if (const int result = enter(); result != 0) return result;
  const Handle current = lane->context();
  if (current == 0) return CUDA_ERROR_INVALID_CONTEXT;
  context = find_context(*process, current);
  if (context == nullptr || !context->active.load(std::memory_order_acquire)) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return 0;
}

CallSite EntryContext::site(protocol::Order order) const noexcept {
  CallSite site;
  site.order = order;
  site.context = context == nullptr ? 0 : context->handle;
  return site;
}

CallSite EntryContext::passing_site() const noexcept {
  CallSite result = site();
  result.flags = protocol::kFlagPassesStreams;
  return result;
}

CallSite EntryContext::stream_site(Handle stream) const noexcept {
  CallSite result = site(protocol::Order::kStream);
  result.stream = stream;
  if (stream > protocol::kStreamPerThread) result.context = handles().context_of(stream);
  return result;
}

Context* find_context(const Process& process, Handle handle) noexcept {
  if (claimed_kind(handle) != HandleKind::kContext) return nullptr;
  return static_cast<Context*>(process.session->handles().object_of(handle));
}

int post_row(const EntryContext& here, std::uint16_t opcode, CallSite site,
             std::span<const Handle> minted, void* const* arguments) {
  const driver_abi::Row& row = *driver_abi::find_row(opcode);
  if (server_lacks(opcode) || driver_lacks(opcode)) return call_lacking(row);
  protocol::PackedCall call;
  if (const int result = packed(call.pack(row, arguments, minted)); result != 0) {
    return result;
  }
  site.opcode = opcode;
  site.form = protocol::Form::kCall;
  return here.session().post(*here.lane, site, call.bytes());
}

int call_row(const EntryContext& here, std::uint16_t opcode, CallSite site,
             std::span<const Handle> minted, void* const* arguments, int* own) {
  const driver_abi::Row& row = *driver_abi::find_row(opcode);
  if (server_lacks(opcode) || driver_lacks(opcode)) return call_lacking(row);
  protocol::PackedCall call;
  if (const int result = packed(call.pack(row, arguments, minted)); result != 0) {
    return result;
  }
  site.opcode = opcode;
  site.form = protocol::Form::kCall;
  Reply reply;
  const int result = here.session().call(*here.lane, site, call.bytes(), &reply);
  if (own != nullptr) *own = reply.result;
  // The result may be an earlier call's failure although this call has done its work.
  if (reply.result != 0 || reply.payload.empty()) return result != 0 ? result : reply.result;
  const Result<int> unpacked = protocol::unpack_reply(row, arguments, reply.payload);
  if (!unpacked.ok()) {
    GPURUN_LOG(kError, "%s", unpacked.status().to_string().c_str());
    return CUDA_ERROR_UNKNOWN;
  }
  return result;
}

bool wait_row_early(const EntryContext& here, std::uint16_t opcode, CallSite site, int* result,
                    void* const* arguments) {
  protocol::PackedCall call;
  if (!call.pack(*driver_abi::find_row(opcode), arguments, {}).ok()) return false;
  site.opcode = opcode;
  site.form = protocol::Form::kCall;
  return here.session().wait_answered_early(*here.lane, site, call.bytes(), result);
}

bool wait_row_early(const EntryContext& here, std::uint16_t opcode,
                    const Session::Recorded& recorded, CallSite site, int* result,
                    void* const* arguments) {
  protocol::PackedCall call;
  if (!call.pack(*driver_abi::find_row(opcode), arguments, {}).ok()) return false;
  site.opcode = opcode;
  site.form = protocol::Form::kCall;
  return here.session().wait_answered_early(*here.lane, recorded, site, call.bytes(), result);
}

}  // namespace gpurun::client::interpose
