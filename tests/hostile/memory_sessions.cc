// Memory sessions: memory of others, sums that overflow, transfers used by two calls, and more
// memory than there is.
#include <cstring>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/device_memory.h"
#include "protocol/calls/graph_host.h"
#include "protocol/calls/graph_memory.h"
#include "protocol/calls/graph_parameters.h"
#include "protocol/calls/host_arena.h"
#include "protocol/calls/host_mirror.h"
#include "protocol/calls/managed_variable.h"
#include "protocol/calls/module_calls.h"
#include "protocol/calls/shareable_handle.h"
#include "tests/hostile/acts.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

bool touch_memory_of_others(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  if (mine == 0) return false;
  for (const std::uint64_t address : kAddresses) {
    if (!refused(copy(of, Form::kCopyInline, address, 0, 64)) ||
        !refused(copy(of, Form::kCopyOut, 0, address, 64)) ||
        !refused(copy(of, Form::kCopyDevice, mine, address, 64)) ||
        !refused(copy(of, Form::kCopyDevice, address, mine, 64)) ||
        !refused(fill(of, {address, 0, 64, 1, 0, 1}))) {
      return false;
    }
  }
  return refused(copy(of, Form::kCopyDevice, mine, mine, std::uint64_t{1} << 39));
}

bool fill_more_than_there_is(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  constexpr std::uint64_t kWide = std::uint64_t{1} << 62;
  return mine != 0 && refused(fill(of, {mine, 0, kWide, 1, 0, 4})) &&
         refused(fill(of, {mine, kWide, 16, 8, 0, 1})) &&
         refused(fill(of, {mine, 64, 16, kWide, 0, 1})) &&
         refused(fill(of, {mine, 1 << 20, 16, 1 << 20, 0, 4}));
}

bool name_a_transfer_twice(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  RecordHeader header = Stranger::in_stream("cuMemcpyHtoDAsync_v2", Form::kCopyIn);
  header.bulk = 5;
  header.lane = 1;
  header.stream = protocol::kStreamPerThread;
  const protocol::CopyPayload words{mine, 0, 4096};
  of.call(header, bytes_of(words));  // Waits for bytes that never arrive.
  header.lane = 2;
  return mine != 0 && refused(of.ask(header, bytes_of(words)));
}

bool send_another_size_than_was_said(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  of.chunk(FrameKind::kChunk, {6, 0, 8192, 0}, 8192);
  const auto reply = copy(of, Form::kCopyIn, mine, 0, 4096, 6);
  // The call may arrive before the chunk, which uses another connection. Then the chunk ends the
  // session.
  return mine != 0 && (!reply.has_value() || refused(reply));
}

bool return_memory_that_is_not_theirs(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  if (mine == 0) return false;
  RecordHeader header = Stranger::in_context("cuMemFree_v2", Form::kRaw, Order::kOrderedHost);
  for (const auto kind : {protocol::ReturnKind::kFreed, protocol::ReturnKind::kPiece,
                          protocol::ReturnKind::kWindow, static_cast<protocol::ReturnKind>(99)}) {
    for (const std::uint64_t piece : kAddresses) {
      for (const std::uint32_t device : {0u, 7u, 0xffff'ffffu}) {
        const protocol::MemoryReturn words{kind, device, piece, piece};
        of.call(header, bytes_of(words));
      }
    }
  }
  for (const std::uint64_t address : kAddresses) {
    std::uint64_t pointer = address;
    of.ask_row("cuMemFree_v2", {&pointer});
  }
  return true;
}

bool ask_for_more_than_there_is(Stranger& of) {
  if (!of.make_context()) return false;
  const RecordHeader header = Stranger::in_context("cuMemAlloc_v2", Form::kRaw, Order::kContext);
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, limits::kWindowedBytesMax + 1, ~std::uint64_t{0}}) {
    const protocol::CreditRequest wish{bytes, 0, 0};
    if (!refused(of.ask(header, bytes_of(wish)))) return false;
  }
  const protocol::CreditRequest window{4096, kAddresses[7], ~std::uint64_t{0}};
  return refused(of.ask(header, bytes_of(window)));
}

// Such a client has offered no file, and cannot over TCP. Its copies then name what it wished for.
bool map_host_memory_without_a_file(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  if (mine == 0) return false;
  const RecordHeader maps = Stranger::in_context("cuMemHostAlloc", Form::kRaw, Order::kContext);
  RecordHeader ends = Stranger::in_context("cuMemFreeHost", Form::kRaw, Order::kOrderedHost);
  for (const std::uint64_t address : kAddresses) {
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, std::uint64_t{4096}, ~std::uint64_t{4095}}) {
      protocol::HostBlock block{protocol::HostBlockKind::kMap, 0, address, address, bytes, bytes};
      if (!refused(of.ask(maps, bytes_of(block)))) return false;
      block.kind = protocol::HostBlockKind::kUnmap;
      if (!refused(of.ask(ends, bytes_of(block)))) return false;
      block.kind = static_cast<protocol::HostBlockKind>(77);
      if (!refused(of.ask(maps, bytes_of(block)))) return false;
    }
    if (!refused(copy(of, Form::kCopyDevice, mine, address, 64)) ||
        !refused(copy(of, Form::kCopyDevice, address, mine, 64))) {
      return false;
    }
  }
  return true;
}

// The worker has a copy of such memory. Pieces and ranges that leave it are refused or ignored.
bool exchange_host_memory_that_is_not_theirs(Stranger& of) {
  if (!of.make_context()) return false;
  const RecordHeader maps = Stranger::in_context("cuMemAllocManaged", Form::kRaw, Order::kContext);
  // As the client does: a worker with a sanitizer has the first place in use.
  const auto map_at = [&](std::uint64_t place) {
    constexpr std::uint64_t kSpan = std::uint64_t{1} << 30;
    const protocol::HostBlock mine{protocol::HostBlockKind::kMirror, 0, place, 0, 1 << 20, kSpan};
    const auto mapped = of.ask(maps, bytes_of(mine));
    return mapped.has_value() && mapped->result == 0;
  };
  if (!map_at(std::uint64_t{0x1800} << 32) && !map_at(std::uint64_t{0x68} << 32)) return false;
  RecordHeader header =
      Stranger::in_context("cuMemHostGetDevicePointer_v2", Form::kRaw, Order::kImmediate);
  const auto exchange = [&](protocol::HostMirrorStep step, ByteView rest) {
    const protocol::HostMirrorHead head{step, 0, 0};
    Bytes payload(sizeof head + rest.size());
    std::memcpy(payload.data(), &head, sizeof head);
    if (!rest.empty()) std::memcpy(payload.data() + sizeof head, rest.data(), rest.size());
    return of.ask(header, payload);
  };
  for (const std::uint64_t address : kAddresses) {
    for (const std::uint32_t bytes : {0u, 64u, 63u, 0xffff'ffc0u}) {
      const protocol::HostMirrorPiece piece{address, bytes, 0};
      Bytes pieces(sizeof piece + 64);
      std::memcpy(pieces.data(), &piece, sizeof piece);
      if (!refused(exchange(protocol::HostMirrorStep::kWrite, pieces))) return false;
      const protocol::HostMirrorRange range{address, bytes};
      for (const auto step :
           {protocol::HostMirrorStep::kCollect, protocol::HostMirrorStep::kPoll}) {
        const auto answer = exchange(step, bytes_of(range));
        // Nothing of the worker's own memory comes back.
        if (!answer.has_value() ||
            (answer->result == 0 &&
             answer->payload.size() != sizeof(protocol::HostMirrorChanges))) {
          return false;
        }
      }
    }
  }
  return refused(exchange(static_cast<protocol::HostMirrorStep>(7), ByteView())) &&
         refused(exchange(protocol::HostMirrorStep::kCollect, Bytes(8)));
}

// The worker mirrors the driver's memory there, and nothing beside it. After the library's end it
// looks at nothing.
bool use_managed_variables_that_are_not_theirs(Stranger& of) {
  constexpr std::uint64_t kLibrary = handle(HandleKind::kLibrary, 9);
  constexpr std::string_view kText =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .global .attribute(.managed) .align 4 .u32 managed = 5;\n"
      ".visible .entry nothing()\n{\nret;\n}\n";
  if (!of.make_context() || of.load_library(kLibrary, kText) != 0) return false;
  const RecordHeader finds =
      Stranger::in_context("cuLibraryGetManaged", Form::kRaw, Order::kContext);
  for (const std::uint64_t owner : {std::uint64_t{0}, kLibrary, kLibrary + 1, Stranger::kContext}) {
    for (const std::string& name :
         {std::string(), std::string("nothing"), std::string(4000, 'x')}) {
      const protocol::NameRequest request{owner, 0, name};
      if (!refused(of.ask(finds, protocol::pack(request)))) return false;
    }
  }
  if (!refused(of.ask(finds, Bytes(100, std::byte{0xff})))) return false;
  protocol::ManagedVariable variable;
  for (int again = 0; again < 2; ++again) {
    const auto found = of.ask(finds, protocol::pack(protocol::NameRequest{kLibrary, 0, "managed"}));
    if (!found.has_value() || found->result != 0 || found->payload.size() != sizeof variable) {
      return false;
    }
    std::memcpy(&variable, found->payload.data(), sizeof variable);
  }
  const RecordHeader exchanges =
      Stranger::in_context("cuMemHostGetDevicePointer_v2", Form::kRaw, Order::kImmediate);
  const auto exchange = [&](protocol::HostMirrorStep step, ByteView rest) {
    const protocol::HostMirrorHead head{step, 0, 0};
    Bytes payload(sizeof head + rest.size());
    std::memcpy(payload.data(), &head, sizeof head);
    std::memcpy(payload.data() + sizeof head, rest.data(), rest.size());
    return of.ask(exchanges, payload);
  };
  const auto write = [&](std::uint64_t address, std::uint32_t bytes) {
    const protocol::HostMirrorPiece piece{address, bytes, 0};
    Bytes pieces(sizeof piece + bytes);
    std::memcpy(pieces.data(), &piece, sizeof piece);
    return exchange(protocol::HostMirrorStep::kWrite, pieces);
  };
  const std::uint64_t first = variable.first_line(), end = variable.lines_end();
  const auto inside = write(first, 64);
  if (!inside.has_value() || inside->result != 0 || !refused(write(first - 64, 128)) ||
      !refused(write(end - 64, 128)) || !refused(write(end, 64))) {
    return false;
  }
  std::uint64_t library = kLibrary;
  const auto ended = of.ask_row("cuLibraryUnload", {&library});
  if (!ended.has_value() || ended->result != 0 || !refused(write(first, 64))) return false;
  const protocol::HostMirrorRange range{first, end - first, 0};
  const auto nothing = exchange(protocol::HostMirrorStep::kCollect, bytes_of(range));
  return nothing.has_value() && nothing->result == 0 &&
         nothing->payload.size() == sizeof(protocol::HostMirrorChanges);
}

// Descriptors of allocations: tokens that nobody gave, and more exports than there is room for.
bool share_allocations_without_end(Stranger& of) {
  constexpr std::uint64_t kMemory = handle(HandleKind::kAllocation, 9);
  constexpr std::uint64_t kOther = handle(HandleKind::kAllocation, 10);
  if (!of.make_context()) return false;
  const RecordHeader exports =
      Stranger::in_context("cuMemExportToShareableHandle", Form::kRaw, Order::kContext);
  const RecordHeader imports =
      Stranger::in_context("cuMemImportFromShareableHandle", Form::kRaw, Order::kContext);
  const RecordHeader pool_exports =
      Stranger::in_context("cuMemPoolExportToShareableHandle", Form::kRaw, Order::kContext);
  const RecordHeader pool_imports =
      Stranger::in_context("cuMemPoolImportFromShareableHandle", Form::kRaw, Order::kContext);
  protocol::ExportRequest request;
  for (const std::uint64_t object : {std::uint64_t{0}, kMemory, Stranger::kContext}) {
    for (const std::uint32_t step : {0u, 1u, 2u, 77u}) {
      request.step = static_cast<protocol::ExportStep>(step);
      request.object = object;
      if (!refused(of.ask(exports, bytes_of(request)))) return false;
      if (!refused(of.ask(pool_exports, bytes_of(request)))) return false;
    }
  }
  protocol::ImportRequest guess;
  for (unsigned i = 0; i < 200; ++i) {
    guess.token.fill(static_cast<std::uint8_t>(i));
    guess.minted = i % 3 == 0 ? kOther : i;
    if (!refused(of.ask(imports, bytes_of(guess)))) return false;
    if (!refused(of.ask(pool_imports, bytes_of(guess)))) return false;
  }
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::uint64_t word = 0, bytes = 2 << 20, flags = 0, memory = kMemory;
  void *place = &word, *described = &properties;
  if (refused(of.ask_row("cuMemCreate", {&place, &bytes, &described, &flags}, {kMemory}))) {
    return false;
  }
  request.step = protocol::ExportStep::kBegin;
  request.object = kMemory;
  constexpr unsigned kOfLease = 1024;  // ExchangeLimits::descriptors_of_lease.
  unsigned given = 0;
  while (given <= kOfLease && !refused(of.ask(exports, bytes_of(request)))) ++given;
  return given > 100 && given <= kOfLease && !refused(of.ask_row("cuMemRelease", {&memory})) &&
         refused(of.ask(exports, bytes_of(request)));
}

// As in a batch of copies: many in a row, each to memory that the previous step has just freed.
bool copy_in_batches_to_memory_that_goes(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  if (mine == 0) return false;
  RecordHeader header = Stranger::in_stream("cuMemcpyDtoDAsync_v2", Form::kCopyDevice);
  RecordHeader giving = Stranger::in_context("cuMemFree_v2", Form::kRaw, Order::kOrderedHost);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const protocol::CopyPayload words{mine + i * 64, mine + (i + 1) * 64,
                                      i % 7 == 0 ? std::uint64_t{1} << 39 : 64};
    of.call(header, bytes_of(words));
    const protocol::MemoryReturn back{protocol::ReturnKind::kFreed, 0, i + 1, mine + i * 64};
    if (i % 50 == 49) of.call(giving, bytes_of(back));
  }
  return true;
}

bool make_another_graph(Stranger& of, std::uint64_t graph) {
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  unsigned flags = 0;
  return !refused(of.ask_row("cuGraphCreate", {&place, &flags}, {graph}));
}

bool make_graph(Stranger& of, std::uint64_t graph) {
  return of.make_context() && make_another_graph(of, graph);
}

// Nodes that copy to and from memory of others. The products of their shapes overflow.
bool add_copy_nodes_that_lie(Stranger& of) {
  constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 9);
  if (!make_graph(of, kGraph)) return false;
  const RecordHeader header =
      Stranger::in_context("cuGraphAddMemcpyNode", Form::kRaw, Order::kContext);
  std::uint64_t index = 10;
  for (const auto work : {protocol::GraphWork::kCopyIn, protocol::GraphWork::kCopyOut,
                          protocol::GraphWork::kCopyDevice, static_cast<protocol::GraphWork>(77)}) {
    for (const std::uint64_t many : {std::uint64_t{1} << 33, ~std::uint64_t{0}}) {
      protocol::GraphNodePayload node;
      node.work = work;
      node.graph = kGraph;
      node.node = handle(HandleKind::kGraphNode, ++index);
      node.operation = index;
      node.width = node.lines = node.slices = many;
      node.source.address = node.destination.address = kAddresses[3];
      if (!refused(of.ask(header, bytes_of(node)))) return false;
      // More dependencies than the payload holds.
      node.width = node.lines = node.slices = 1;
      node.dependency_count = 0xffff'ffff;
      if (!refused(of.ask(header, bytes_of(node)))) return false;
    }
  }
  return true;
}

// Nodes that allocate more than there is, on devices that do not exist, behind nodes of no graph,
// and with more dependencies or accesses than the payload holds.
bool add_allocation_nodes_that_lie(Stranger& of) {
  constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 9);
  if (!make_graph(of, kGraph)) return false;
  std::uint64_t word = 0;
  const RecordHeader adds =
      Stranger::in_context("cuGraphAddMemAllocNode", Form::kRaw, Order::kContext);
  const RecordHeader gets =
      Stranger::in_context("cuGraphMemAllocNodeGetParams", Form::kRaw, Order::kContext);
  protocol::GraphMemoryPayload honest;
  honest.graph = kGraph;
  honest.node = handle(HandleKind::kGraphNode, 10);
  honest.properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  honest.properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  honest.properties.win32SecurityAttributes = &word;  // The worker must not follow it.
  honest.bytes = 4096;
  const auto made = of.ask(adds, bytes_of(honest));
  if (refused(made) || made->payload.size() != sizeof word) return false;
  std::vector<protocol::GraphMemoryPayload> lies(9, honest);
  for (std::size_t i = 0; i < lies.size(); ++i) {
    lies[i].node = handle(HandleKind::kGraphNode, 11 + i);
  }
  lies[0].bytes = ~std::uint64_t{0};
  lies[1].bytes = std::uint64_t{1} << 62;
  lies[2].properties.location.id = -1;
  lies[3].properties.location.id = 0x7fff'ffff;
  lies[4].graph = honest.node;
  lies[5].dependency_count = 0xffff'ffff;
  lies[6].access_count = 0xffff'ffff;
  lies[7].access_count = protocol::kGraphMemoryAccessesMax;
  lies[8].dependency_count = 1;
  for (const protocol::GraphMemoryPayload& lie : lies) {
    if (!refused(of.ask(adds, bytes_of(lie)))) return false;
    if (!refused(of.ask(gets, bytes_of(lie.node)))) return false;
  }
  // A handle that no count names, and a dependency that is no node.
  for (const std::uint32_t count : {0u, 1u}) {
    protocol::GraphMemoryPayload behind = honest;
    behind.node = handle(HandleKind::kGraphNode, 30 + count);
    behind.dependency_count = count;
    Bytes whole(sizeof behind + sizeof kGraph);
    std::memcpy(whole.data(), &behind, sizeof behind);
    std::memcpy(whole.data() + sizeof behind, &kGraph, sizeof kGraph);
    if (!refused(of.ask(adds, whole)) || !refused(of.ask(gets, bytes_of(behind.node)))) {
      return false;
    }
  }
  return refused(of.ask(gets, bytes_of(kGraph))) && refused(of.ask(adds, {})) &&
         !refused(of.ask(gets, bytes_of(honest.node)));
}

// Memory operations and child graphs with more of everything than the payload holds, handles of
// other kinds, and a graph that moves into itself.
bool add_nodes_that_lie(Stranger& of) {
  constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 9);
  constexpr std::uint64_t kChild = handle(HandleKind::kGraph, 10);
  if (!make_graph(of, kGraph) || !make_another_graph(of, kChild)) return false;
  const RecordHeader adds =
      Stranger::in_context("cuGraphAddBatchMemOpNode", Form::kRaw, Order::kContext);
  protocol::GraphBatchPayload batch;
  batch.graph = kGraph;
  batch.node = handle(HandleKind::kGraphNode, 40);
  for (const std::uint32_t many : {1u, 257u, 0xffff'ffffu}) {
    protocol::GraphBatchPayload lie = batch;
    lie.operation_count = many;
    if (!refused(of.ask(adds, bytes_of(lie)))) return false;
    lie = batch;
    lie.dependency_count = many;
    if (!refused(of.ask(adds, bytes_of(lie)))) return false;
  }
  protocol::GraphBatchPayload wrong = batch;
  wrong.context = kGraph;
  if (!refused(of.ask(adds, bytes_of(wrong)))) return false;
  for (const char* row : {"cuGraphBatchMemOpNodeGetParams", "cuGraphNodeGetParams"}) {
    const RecordHeader reads = Stranger::in_context(row, Form::kRaw, Order::kContext);
    if (!refused(of.ask(reads, bytes_of(batch.node))) ||
        !refused(of.ask(reads, bytes_of(kGraph))) || !refused(of.ask(reads, {}))) {
      return false;
    }
  }
  const RecordHeader moves = Stranger::in_context("cuGraphAddNode_v2", Form::kRaw, Order::kContext);
  protocol::GraphMovePayload move;
  move.graph = kGraph;
  move.node = handle(HandleKind::kGraphNode, 41);
  move.child = kGraph;
  if (!refused(of.ask(moves, bytes_of(move)))) return false;
  move.child = kChild;
  move.dependency_count = 0xffff'ffff;
  if (!refused(of.ask(moves, bytes_of(move))) || !refused(of.ask(moves, {}))) return false;
  move.dependency_count = 0;
  if (refused(of.ask(moves, bytes_of(move)))) return false;
  // It has moved already, and its parent must not become its child.
  move.node = handle(HandleKind::kGraphNode, 42);
  if (!refused(of.ask(moves, bytes_of(move)))) return false;
  std::swap(move.graph, move.child);
  return refused(of.ask(moves, bytes_of(move)));
}

constexpr Session kSessions[] = {
    {"memory_of_others", "served", touch_memory_of_others},
    {"fills_that_wrap", "served", fill_more_than_there_is},
    {"fill_of_elements_of_three_bytes", "wrong element",
     [](Stranger& of) {
       (void)fill(of, {0x1000, 0, 64, 1, 0, 3});
       return true;
     }},
    {"transfer_named_by_two_calls", "served", name_a_transfer_twice},
    {"transfer_of_another_size_than_its_call_says", "served|chunks that disagree about its size",
     send_another_size_than_was_said},
    {"returns_of_memory_that_is_not_theirs", "served", return_memory_that_is_not_theirs},
    {"host_memory_without_a_file", "served", map_host_memory_without_a_file},
    {"host_memory_exchanges_that_lie", "served", exchange_host_memory_that_is_not_theirs},
    {"managed_variables_that_are_not_theirs", "served", use_managed_variables_that_are_not_theirs},
    {"allocations_shared_without_end", "served", share_allocations_without_end},
    {"credit_beyond_all_bounds", "served", ask_for_more_than_there_is},
    {"copies_in_batches_to_memory_that_goes", "served", copy_in_batches_to_memory_that_goes},
    {"copy_nodes_that_lie", "served", add_copy_nodes_that_lie},
    {"allocation_nodes_that_lie", "served", add_allocation_nodes_that_lie},
    {"nodes_that_lie", "served", add_nodes_that_lie},
};

}  // namespace

std::span<const Session> memory_sessions() { return kSessions; }

}  // namespace gpurun::hostile
