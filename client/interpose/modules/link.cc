// Links: the steps of a link, and the image that comes back in parts. See link.h.
#include "client/interpose/modules/link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "client/interpose/call/refusals.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose::modules {
namespace {

using protocol::LinkReply;

CallSite link_site(const EntryContext& here, std::uint16_t row, Handle context) {
  CallSite site = here.passing_site();
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  site.context = context;
  return site;
}

// One round trip of a link. The link's mutex must be held. Writes the program's outputs. `*part`
// (optional) gets the part of the image in the reply. Returns this step's own failure. `*earlier`
// gets an earlier call's failure although this one has done its work.
int step(const EntryContext& here, Link& link, std::uint16_t row, ByteView payload, ByteView bulk,
         int* earlier, Bytes* part = nullptr) {
  if (server_lacks(row) || driver_lacks(row)) return call_lacking(*driver_abi::find_row(row));
  Reply reply;
  const int result =
      here.session().call_with_bulk(*here.lane, link_site(here, row, link.context),
                                    std::span<const ByteView>(&payload, 1), bulk, &reply);
  if (reply.result != 0 || reply.payload.empty()) {
    if (result != 0) return result;
    return reply.result != 0 ? reply.result : int{CUDA_ERROR_UNKNOWN};
  }
  auto now = protocol::unpack_link_reply(reply.payload);
  if (!now.ok()) {
    GPURUN_LOG(kError, "the worker answered a link with nonsense: %s",
               now.status().to_string().c_str());
    return CUDA_ERROR_UNKNOWN;
  }
  if (part != nullptr) part->assign(now->part.begin(), now->part.end());
  now->part = {};
  link.jit.write(*now, link.latest);
  link.latest = std::move(*now);
  if (result != 0) *earlier = result;
  return link.latest.result;
}

// Fetches the rest of an image. `image` holds its beginning.
int fetch_rest(const EntryContext& here, Link& link, Bytes& image, int* earlier) {
  const std::uint64_t whole = link.latest.image_bytes;
  while (image.size() < whole) {
    const protocol::LinkComplete request{link.handle, image.size()};
    Bytes part;
    const int result =
        step(here, link, opcode::cuLinkComplete, bytes_of(request), ByteView(), earlier, &part);
    if (result != 0) return result;
    if (part.empty() || link.latest.image_bytes != whole || part.size() > whole - image.size()) {
      GPURUN_LOG(kError, "the worker sent another image than it has announced");
      return CUDA_ERROR_UNKNOWN;
    }
    image.insert(image.end(), part.begin(), part.end());
  }
  return 0;
}

}  // namespace

int create_link(const EntryContext& here, const JitRequest& jit, std::shared_ptr<Link>* link) {
  auto made = std::make_shared<Link>();
  made->jit = jit;
  made->context = here.context->handle;
  made->latest = jit.untouched();
  made->handle = here.handles().mint(HandleKind::kLinkState, made->context, nullptr);
  if (made->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  protocol::LinkCreate request;
  request.state = made->handle;
  request.options = jit.numbers;
  request.wall_time = jit.wants_wall_time();
  request.info_log_bytes = jit.info_log_bytes;
  request.error_log_bytes = jit.error_log_bytes;
  const Bytes payload = protocol::pack(request);
  int earlier = 0;
  // No other thread knows this link yet.
  const int result = step(here, *made, opcode::cuLinkCreate_v2, payload, ByteView(), &earlier);
  if (result != 0) {
    here.handles().retire(made->handle);
    return result;
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.links[made->handle] = made;
  *link = std::move(made);
  return earlier;
}

int find_link(const EntryContext& here, Handle handle, std::shared_ptr<Link>* link) {
  if (const int result = here.check(handle, HandleKind::kLinkState); result != 0) return result;
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.links.find(handle);
    if (found == all.links.end()) return CUDA_ERROR_INVALID_HANDLE;
    *link = found->second;
  }
  return here.session().health((*link)->context);
}

int add_input(const EntryContext& here, Link& link, CUjitInputType type, ByteView data,
              const char* name, const JitRequest& jit) {
  if (data.size() > limits::kLinkBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  protocol::LinkInput input;
  input.state = link.handle;
  input.type = static_cast<std::uint32_t>(type);
  input.options = jit.numbers;
  if (name != nullptr) {
    const std::size_t length = strnlen(name, limits::kStringBytesMax);
    if (length == limits::kStringBytesMax) return CUDA_ERROR_INVALID_VALUE;
    input.named = true;
    input.name.assign(name, length);
  }
  const bool inside = data.size() <= protocol::kInlineInputBytesMax;
  if (inside) input.data = data;
  const Bytes payload = protocol::pack(input);
  const std::lock_guard lock(link.mutex);
  int earlier = 0;
  const int result =
      step(here, link, opcode::cuLinkAddData_v2, payload, inside ? ByteView() : data, &earlier);
  return result != 0 ? result : earlier;
}

int complete_link(const EntryContext& here, Link& link, ByteView* image) {
  const std::lock_guard lock(link.mutex);
  const protocol::LinkComplete request{link.handle, 0};
  Bytes bytes;
  int earlier = 0;
  int result =
      step(here, link, opcode::cuLinkComplete, bytes_of(request), ByteView(), &earlier, &bytes);
  if (result == 0) result = fetch_rest(here, link, bytes, &earlier);
  if (result != 0) return result;
  if (bytes.empty()) return CUDA_ERROR_UNKNOWN;
  const auto made = std::make_shared<const Bytes>(std::move(bytes));
  const std::lock_guard registry_lock(registry().mutex);
  // An image that the program has the address of stays there.
  const auto same = std::find_if(link.images.begin(), link.images.end(),
                                 [&made](const auto& each) { return *each == *made; });
  if (same != link.images.end()) {
    *image = **same;
  } else {
    link.images.push_back(made);
    *image = *made;
  }
  return earlier;
}

int end_link(const EntryContext& here, const Link& link) {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    // Another thread may have ended it first.
    if (all.links.erase(link.handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  CallSite site = here.site(protocol::Order::kOrderedHost);
  site.flags = protocol::kFlagPassesStreams;
  site.context = link.context;
  const int result = post_row(here, opcode::cuLinkDestroy, site, {}, link.handle);
  here.handles().retire(link.handle);
  return result;
}

Result<driver_abi::Image> image_of_program(const void* image, std::shared_ptr<const Bytes>* kept) {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    for (const auto& [handle, link] : all.links) {
      for (const std::shared_ptr<const Bytes>& each : link->images) {
        if (each->data() == image) *kept = each;
      }
    }
  }
  return *kept == nullptr ? driver_abi::image_at(image) : driver_abi::image_in(**kept);
}

}  // namespace gpurun::client::interpose::modules
