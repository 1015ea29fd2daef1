// Handle sessions: handles that are not the client's or no longer exist, in each row of the table.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "protocol/calls/memory_pool.h"
#include "tests/hostile/acts.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

bool name_handles_that_nobody_made(Stranger& of) {
  if (!of.make_context()) return false;
  const protocol::EventPayload payload;
  for (int kind = 1; kind < static_cast<int>(HandleKind::kGraphConditional); ++kind) {
    const std::uint64_t foreign = handle(static_cast<HandleKind>(kind), 77);
    RecordHeader header = Stranger::in_stream("cuStreamWaitEvent", Form::kStreamWait);
    header.subject = foreign;
    if (!refused(of.ask(header, bytes_of(payload)))) return false;
    header.stream = foreign;
    if (!refused(of.ask(header, bytes_of(payload)))) return false;
    header = Stranger::in_stream("cuEventRecord", Form::kEventRecord);
    header.context = foreign;
    header.subject = Stranger::kContext;  // A live handle of another kind.
    if (!refused(of.ask(header, bytes_of(payload)))) return false;
    if (!refused(launch(of, {.function = foreign}))) return false;
  }
  // A live handle, in places for another kind.
  RecordHeader header = Stranger::in_stream("cuEventRecord", Form::kEventRecord);
  header.subject = Stranger::kContext;
  if (!refused(of.ask(header, bytes_of(payload)))) return false;
  header.stream = Stranger::kContext;
  return refused(of.ask(header, bytes_of(payload))) &&
         refused(launch(of, {.function = Stranger::kContext}));
}

bool use_handles_after_their_end(Stranger& of) {
  constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 9);
  if (!of.make_context()) return false;
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  unsigned flags = 0;
  std::uint64_t graph = kGraph;
  const auto made = of.ask_row("cuGraphCreate", {&place, &flags}, {kGraph});
  if (!made.has_value() || made->result != 0) return false;
  const auto gone = of.ask_row("cuGraphDestroy", {&graph});
  if (!gone.has_value() || gone->result != 0) return false;
  for (int i = 0; i < 3; ++i) {
    if (!refused(of.ask_row("cuGraphDestroy", {&graph}))) return false;
  }
  return true;
}

bool make_a_graph_of_cycles(Stranger& of) {
  constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 9);
  constexpr std::uint64_t kNodes[] = {handle(HandleKind::kGraphNode, 10),
                                      handle(HandleKind::kGraphNode, 11)};
  if (!of.make_context()) return false;
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  unsigned flags = 0;
  std::uint64_t graph = kGraph;
  std::uint64_t none = 0;
  const std::uint64_t* no_nodes = nullptr;
  if (refused(of.ask_row("cuGraphCreate", {&place, &flags}, {kGraph}))) return false;
  for (const std::uint64_t node : kNodes) {
    if (refused(of.ask_row("cuGraphAddEmptyNode", {&place, &graph, &no_nodes, &none}, {node}))) {
      return false;
    }
  }
  std::uint64_t count = 1;
  bool all_done = true;
  for (int turn = 0; turn < 2; ++turn) {
    const std::uint64_t* from = &kNodes[turn];
    const std::uint64_t* to = &kNodes[1 - turn];
    all_done =
        !refused(of.ask_row("cuGraphAddDependencies", {&graph, &from, &to, &count})) && all_done;
  }
  std::uint64_t more = 0;
  const bool instantiated =
      !refused(of.ask_row("cuGraphInstantiateWithFlags", {&place, &graph, &more},
                          {handle(HandleKind::kGraphExec, 12)}));
  return !(all_done && instantiated);
}

bool ask_for_every_row(Stranger& of, Form form, std::size_t bytes) {
  if (!of.make_context()) return false;
  const Bytes noise(bytes, std::byte{0x5a});
  for (const driver_abi::Row& row : driver_abi::rows()) {
    const std::string_view symbol = row.symbol;
    // The other rows need the context.
    if (symbol.find("PrimaryCtx") != std::string_view::npos) continue;
    RecordHeader header = Stranger::in_context(row.symbol, form, Order::kContext);
    header.flags = protocol::kFlagFence;
    of.call(header, noise);
  }
  for (const unsigned number : {0u, 4095u, 65535u}) {
    RecordHeader header;
    header.form = form;
    header.opcode = static_cast<std::uint16_t>(number);
    if (!refused(of.ask(header, noise))) return false;
  }
  return true;
}

// Calls each row as a program might, with live handles. Memory behind pointers is filled with
// `filling`. Rows that destroy come last.
bool call_every_row_with_live_handles(Stranger& of, std::byte filling) {
  const std::uint64_t mine = prepared(of, "poke") ? of.allocate(1 << 20) : 0;
  if (mine == 0) return false;
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  std::uint64_t flags = 0;
  std::uint64_t live[64] = {};
  const auto make = [&](const char* symbol, HandleKind kind) {
    std::uint64_t& made = live[static_cast<std::size_t>(kind)];
    made = handle(kind, 30);
    return !refused(of.ask_row(symbol, {&place, &flags}, {made}));
  };
  if (!make("cuStreamCreate", HandleKind::kStream) || !make("cuEventCreate", HandleKind::kEvent) ||
      !make("cuGraphCreate", HandleKind::kGraph)) {
    return false;
  }
  live[static_cast<std::size_t>(HandleKind::kContext)] = Stranger::kContext;
  live[static_cast<std::size_t>(HandleKind::kModule)] = Stranger::kModule;
  live[static_cast<std::size_t>(HandleKind::kFunction)] = Stranger::kFunction;
  static std::byte pointed[1 << 16];
  std::fill(std::begin(pointed), std::end(pointed), filling);
  std::uint64_t next = 1000;
  for (const bool destroying : {false, true}) {
    for (const driver_abi::Row& row : driver_abi::rows()) {
      const std::string_view symbol = row.symbol;
      const bool destroys = symbol.find("Destroy") != std::string_view::npos ||
                            symbol.find("Unload") != std::string_view::npos ||
                            symbol.find("Release") != std::string_view::npos;
      if (destroys != destroying) continue;
      std::uint64_t storage[protocol::kParametersMax][8] = {};
      std::vector<void*> arguments(protocol::kParametersMax);
      std::vector<std::uint64_t> minted;
      for (std::size_t i = 0; i < protocol::kParametersMax; ++i) {
        arguments[i] = storage[i];
        if (i >= row.parameters.size()) continue;
        const driver_abi::Parameter& parameter = row.parameters[i];
        const bool by_value = parameter.shape == driver_abi::Shape::kHandle;
        storage[i][0] = by_value ? live[static_cast<std::size_t>(parameter.handle) % 64]
                                 : reinterpret_cast<std::uintptr_t>(pointed);
        if (parameter.shape == driver_abi::Shape::kScalar) {
          storage[i][0] = std::string_view(parameter.type) == "CUdeviceptr" ? mine : 1;
        }
        if (parameter.shape == driver_abi::Shape::kHandlePointee &&
            parameter.direction != driver_abi::Direction::kIn) {
          minted.push_back(handle(parameter.handle, ++next));
        }
      }
      protocol::PackedCall packed;
      if (!packed.pack(row, arguments.data(), minted).ok()) continue;
      RecordHeader header = Stranger::in_context(row.symbol, Form::kCall, Order::kContext);
      header.flags = protocol::kFlagFence;
      of.call(header, packed.bytes());
    }
  }
  return true;
}

bool ask_pools_that_are_none(Stranger& of) {
  if (!of.make_context()) return false;
  for (const char* symbol : {"cuMemPoolGetAttribute", "cuMemPoolSetAttribute"}) {
    for (const std::uint64_t pool : kAddresses) {
      const protocol::PoolAttributePayload words{pool, 4, 0, pool};
      const auto header = Stranger::in_context(symbol, Form::kRaw, Order::kContext);
      if (!refused(of.ask(header, bytes_of(words)))) return false;
    }
  }
  return true;
}

constexpr Session kSessions[] = {
    {"handles_that_nobody_made_or_of_another_kind", "served", name_handles_that_nobody_made},
    {"handles_after_their_end", "served", use_handles_after_their_end},
    {"graph_of_cycles", "served", make_a_graph_of_cycles},
    {"every_row_with_a_message_of_noise", "served",
     [](Stranger& of) { return ask_for_every_row(of, Form::kCall, 256); }},
    {"every_row_with_an_empty_message", "served",
     [](Stranger& of) { return ask_for_every_row(of, Form::kCall, 0); }},
    {"every_row_with_raw_noise", "served",
     [](Stranger& of) { return ask_for_every_row(of, Form::kRaw, 64); }},
    {"every_row_with_nothing_raw", "served",
     [](Stranger& of) { return ask_for_every_row(of, Form::kRaw, 0); }},
    {"every_row_with_live_handles_and_zeros", "served",
     [](Stranger& of) { return call_every_row_with_live_handles(of, std::byte{0}); }},
    {"every_row_with_live_handles_and_noise", "served",
     [](Stranger& of) { return call_every_row_with_live_handles(of, std::byte{0xa5}); }},
    {"pools_that_are_none", "served", ask_pools_that_are_none},
};

}  // namespace

std::span<const Session> handle_sessions() { return kSessions; }

}  // namespace gpurun::hostile
