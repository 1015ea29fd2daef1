// User objects: objects of the program that graphs keep alive, with the program's destructor
// (cuUserObjectCreate). The worker's driver counts the references, those of graphs, executables and
// launches too. So a destructor runs no earlier than in the driver itself, whatever was answered
// early. The functions that retain and release references are generated rows.
#include <climits>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/session/graph_host.h"
#include "protocol/calls/graph_host.h"

namespace gpurun::client::interpose {
namespace {

int create(CUuserObject* out, void* data, CUhostFn destroy, unsigned references) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  GraphHost& graphs = here.session().graphs();
  protocol::GraphUserObjectPayload payload;
  payload.references = references;
  payload.object = here.handles().mint(HandleKind::kUserObject, 0, nullptr);
  if (payload.object == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  GraphHost::Operation operation;
  operation.destroy = destroy;
  operation.user = data;
  operation.object = payload.object;
  payload.operation = graphs.add(operation);
  int result = payload.operation == 0 ? int{CUDA_ERROR_OUT_OF_MEMORY} : 0;
  std::uint64_t sequence = 0;
  if (result == 0) {
    CallSite site = here.passing_site();
    site.opcode = opcode::cuUserObjectCreate;
    site.form = protocol::Form::kRaw;
    const ByteView parts[] = {bytes_of(payload)};
    result = here.session().post(*here.lane, site, parts, &sequence);
  }
  if (sequence == 0) {  // The worker will not report the end of the operation.
    if (payload.operation != 0) graphs.forget(payload.operation);
    here.handles().retire(payload.object);
    return result;
  }
  *out = as<CUuserObject>(payload.object);
  return result;
}

}  // namespace

namespace custom {

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      initialRefcount > INT_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return cuda(create(object_out, ptr, destroy, initialRefcount));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
