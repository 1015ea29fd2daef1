// Array sessions: arrays, textures and surfaces that do not exist, no longer exist, or are too
// small for the request.
#include <cstring>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/graph_host.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

using protocol::BoxCopyPayload;
using protocol::BoxSide;

constexpr std::uint64_t kArray = handle(HandleKind::kArray, 21);
constexpr std::uint64_t kMipmapped = handle(HandleKind::kMipmappedArray, 22);
constexpr std::uint64_t kLevel = handle(HandleKind::kArray, 23);
constexpr std::uint64_t kWidthBytes = 64, kLines = 8, kSlices = 4;
// Values that a client without an array may pass as one.
constexpr std::uint64_t kNoArrays[] = {handle(HandleKind::kArray, 77),
                                       kMipmapped,
                                       Stranger::kContext,
                                       0x1000,
                                       0x7fff'ffff'f000,
                                       ~0ull};
// Sizes for which sums overflow.
constexpr std::uint64_t kFar[] = {1ull << 32, 1ull << 62, 1ull << 63, ~0ull, ~0ull - 63};

bool done(const std::optional<Stranger::Reply>& reply) {
  return reply.has_value() && reply->result == 0;
}
bool refused(const std::optional<Stranger::Reply>& reply) {
  return reply.has_value() && reply->result != 0;
}

CUDA_ARRAY3D_DESCRIPTOR description() {
  CUDA_ARRAY3D_DESCRIPTOR what{};
  what.Width = kWidthBytes / 4, what.Height = kLines, what.Depth = kSlices;
  what.Format = CU_AD_FORMAT_FLOAT;
  what.NumChannels = 1;
  return what;
}

bool make_array(Stranger& of) {
  const CUDA_ARRAY3D_DESCRIPTOR what = description();
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  const void* described = &what;
  return done(of.ask_row("cuArray3DCreate_v2", {&place, &described}, {kArray}));
}

bool end_array(Stranger& of) {
  std::uint64_t array = kArray;
  return done(of.ask_row("cuArrayDestroy", {&array}, {}, Order::kOrderedHost));
}

bool make_levels(Stranger& of) {
  CUDA_ARRAY3D_DESCRIPTOR what = description();
  what.Depth = 0;
  std::uint64_t word = 0, whole = kMipmapped;
  std::uint64_t* place = &word;
  const void* described = &what;
  unsigned number = 3, level = 1;
  return done(of.ask_row("cuMipmappedArrayCreate", {&place, &described, &number}, {kMipmapped})) &&
         done(of.ask_row("cuMipmappedArrayGetLevel", {&place, &whole, &level}, {kLevel}));
}

// Returns 0 when refused.
std::uint64_t make_texture(Stranger& of, unsigned type, std::uint64_t named) {
  CUDA_RESOURCE_DESC resource{};
  std::memcpy(&resource.resType, &type, sizeof resource.resType);
  std::memcpy(&resource.res, &named, sizeof named);
  const CUDA_TEXTURE_DESC texture{};
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  const void *made_of = &resource, *sampled = &texture, *view = nullptr;
  const auto reply =
      of.ask_row("cuTexObjectCreate", {&place, &made_of, &sampled, &view}, {std::uint64_t{1}});
  return done(reply) ? 1 : 0;
}

std::optional<Stranger::Reply> copy_box(Stranger& of, Form form, const BoxCopyPayload& box) {
  Bytes payload;
  const ByteView view = bytes_of(box);
  payload.insert(payload.end(), view.begin(), view.end());
  if (form == Form::kCopyInline) payload.resize(payload.size() + box.copy.bytes);
  RecordHeader header = Stranger::in_stream("cuMemcpyHtoAAsync_v2", form);
  header.flags = protocol::kFlagBox;
  return of.ask(header, payload);
}

BoxCopyPayload box_of(std::uint64_t width, std::uint64_t lines, std::uint64_t slices) {
  BoxCopyPayload box;
  box.width = width, box.lines = lines, box.slices = slices;
  box.copy.bytes = width * lines * slices;
  return box;
}

// Whether copies into, out of and within arrays are refused, with the array in each place.
bool all_refused(Stranger& of, const BoxSide& side, const BoxCopyPayload& like) {
  BoxCopyPayload in = like, out = like, within = like;
  in.destination = out.source = within.destination = within.source = side;
  return refused(copy_box(of, Form::kCopyInline, in)) &&
         refused(copy_box(of, Form::kCopyOut, out)) &&
         refused(copy_box(of, Form::kCopyDevice, within));
}

bool name_arrays_that_nobody_made(Stranger& of) {
  if (!of.make_context() || !make_array(of)) return false;
  for (const std::uint64_t wrong : kNoArrays) {
    BoxSide side;
    side.array = wrong;
    if (!all_refused(of, side, box_of(4, 1, 1))) return false;
    for (const unsigned type : {0u, 1u, 4u, ~0u}) {
      if (make_texture(of, type, wrong) != 0) return false;
    }
  }
  return make_texture(of, 1, kArray) == 0;  // A live handle of another kind.
}

bool reach_beyond_an_array(Stranger& of) {
  if (!of.make_context() || !make_array(of)) return false;
  for (const std::uint64_t far : kFar) {
    for (std::uint64_t BoxSide::*at : {&BoxSide::x, &BoxSide::y, &BoxSide::z}) {
      BoxSide side;
      side.array = kArray;
      side.*at = far;
      if (!all_refused(of, side, box_of(4, 1, 1))) return false;
    }
  }
  BoxSide side;
  side.array = kArray;
  if (!all_refused(of, side, box_of(kWidthBytes + 4, 1, 1))) return false;
  if (!all_refused(of, side, box_of(kWidthBytes, kLines + 1, 1))) return false;
  return all_refused(of, side, box_of(kWidthBytes, kLines, kSlices + 1));
}

// Memory on the other side. Only its first byte belongs to the client.
bool reach_beyond_memory(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(4096) : 0;
  if (mine == 0 || !make_array(of)) return false;
  for (const std::uint64_t far : kFar) {
    BoxCopyPayload box = box_of(kWidthBytes, kLines, 1);
    box.destination.array = kArray;
    box.copy.source = mine;
    box.source.line_pitch = far;
    box.source.slice_lines = kLines;
    if (!refused(copy_box(of, Form::kCopyDevice, box))) return false;
    box.copy.source = mine + far;
    box.source.line_pitch = kWidthBytes;
    if (!refused(copy_box(of, Form::kCopyDevice, box))) return false;
  }
  return true;
}

bool use_arrays_after_their_end(Stranger& of) {
  if (!of.make_context() || !make_array(of) || !make_levels(of) || !end_array(of)) return false;
  BoxSide side;
  side.array = kArray;
  if (!all_refused(of, side, box_of(4, 1, 1)) || make_texture(of, 0, kArray) != 0) return false;
  std::uint64_t whole = kMipmapped;
  if (!done(of.ask_row("cuMipmappedArrayDestroy", {&whole}, {}, Order::kOrderedHost))) {
    return false;
  }
  side.array = kLevel;
  return all_refused(of, side, box_of(4, 1, 1)) && make_texture(of, 0, kLevel) == 0 &&
         make_texture(of, 1, kMipmapped) == 0;
}

bool end_objects_that_are_none(Stranger& of) {
  if (!of.make_context()) return false;
  for (const char* symbol : {"cuTexObjectDestroy", "cuSurfObjectDestroy"}) {
    for (std::uint64_t value : {std::uint64_t{0x4711}, std::uint64_t{0}, std::uint64_t{1}, kArray,
                                std::uint64_t{0x7fff'ffff'f000}, ~std::uint64_t{0}}) {
      if (!refused(of.ask_row(symbol, {&value}))) return false;
    }
  }
  for (const char* symbol : {"cuTexObjectGetResourceDesc", "cuTexObjectGetTextureDesc",
                             "cuTexObjectGetResourceViewDesc", "cuSurfObjectGetResourceDesc"}) {
    std::byte room[256];
    void* place = room;
    std::uint64_t value = 0x7fff'ffff'f000;
    if (!refused(of.ask_row(symbol, {&place, &value}))) return false;
  }
  return true;
}

bool put_dead_arrays_into_graphs(Stranger& of) {
  constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 24);
  const std::uint64_t mine = of.make_context() ? of.allocate(4096) : 0;
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  unsigned flags = 0;
  if (mine == 0 || !done(of.ask_row("cuGraphCreate", {&place, &flags}, {kGraph}))) return false;
  for (const std::uint64_t wrong : kNoArrays) {
    protocol::GraphNodePayload node;
    node.work = protocol::GraphWork::kCopyDevice;
    node.graph = kGraph;
    node.node = handle(HandleKind::kGraphNode, 25);
    node.source.address = mine;
    node.destination.array = wrong;
    node.width = 4, node.lines = 1, node.slices = 1;
    const auto header = Stranger::in_context("cuGraphAddMemcpyNode", Form::kRaw, Order::kContext);
    if (!refused(of.ask(header, bytes_of(node)))) return false;
  }
  return true;
}

constexpr Session kSessions[] = {
    {"arrays_that_nobody_made_or_of_another_kind", "served", name_arrays_that_nobody_made},
    {"boxes_beyond_an_array", "served", reach_beyond_an_array},
    {"boxes_beyond_memory", "served", reach_beyond_memory},
    {"arrays_and_levels_after_their_end", "served", use_arrays_after_their_end},
    {"textures_and_surfaces_that_are_none", "served", end_objects_that_are_none},
    {"graphs_of_dead_arrays", "served", put_dead_arrays_into_graphs},
    {"box_of_another_size_than_it_says", "box of another size",
     [](Stranger& of) {
       BoxCopyPayload box = box_of(4, 1, 1);
       box.lines = 1ull << 62;
       (void)copy_box(of, Form::kCopyDevice, box);
       return true;
     }},
};

}  // namespace

std::span<const Session> array_sessions() { return kSessions; }

}  // namespace gpurun::hostile
