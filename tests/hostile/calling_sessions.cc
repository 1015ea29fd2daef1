// Calls that every parser lets pass, and that ask for what is not the client's or is not there.
#include <string>

#include "base/planted_flaw.h"
#include "driver_abi/image_length.h"
#include "driver_abi/row.h"
#include "protocol/call.h"
#include "protocol/device_memory.h"
#include "protocol/host_function.h"
#include "protocol/image_bundle.h"
#include "protocol/memory_pool.h"
#include "protocol/module_calls.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

// Floods are small where each step costs ten times as much.
#ifdef GPURUN_PLANTED_FLAWS
constexpr std::size_t kMany = 500;
#else
constexpr std::size_t kMany = 5'000;
#endif

// Somewhere in a process, at its edges, and where sums wrap.
constexpr std::uint64_t kAddresses[] = {0,
                                        0x1000,
                                        0x400000,
                                        0x7fff'ffff'f000,
                                        std::uint64_t{1} << 47,
                                        std::uint64_t{1} << 63,
                                        0xffff'ffff'ffff'f000,
                                        0xffff'ffff'ffff'fff8};

constexpr std::string_view kPtx =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry poke(.param .u64 to)\n{\n.reg .b64 %a;\n.reg .b32 %v;\n"
    "ld.param.u64 %a, [to];\nmov.u32 %v, 7;\nst.global.u32 [%a], %v;\nret;\n}\n"
    ".visible .entry forever(.param .u64 to)\n{\n.reg .b64 %a;\n.reg .b32 %v;\n"
    "ld.param.u64 %a, [to];\nagain:\nld.volatile.global.u32 %v, [%a];\nbra again;\n}\n";

// False when it was done.
bool refused(const std::optional<Stranger::Reply>& reply) {
  return reply.has_value() && reply->result != 0;
}

bool prepared(Stranger& of, const char* kernel) {
  return of.make_context() && of.load(kPtx) == 0 && of.find_kernel(kernel);
}

struct Launch {
  std::uint64_t function = Stranger::kFunction;
  std::uint32_t grid = 1;
  std::uint32_t block = 1;
  std::uint32_t shared = 0;
  Bytes parameters = Bytes(8);
  std::uint64_t layout_hash = 0;
};

std::optional<Stranger::Reply> launch(Stranger& of, const Launch& with) {
  protocol::LaunchPayload head;
  head.function = with.function;
  for (auto& one : head.grid) one = with.grid;
  head.block[0] = with.block;
  head.shared_bytes = with.shared;
  head.parameter_bytes = static_cast<std::uint32_t>(with.parameters.size());
  head.layout_hash = with.layout_hash;
  Bytes payload;
  const ByteView view = bytes_of(head);
  payload.insert(payload.end(), view.begin(), view.end());
  payload.insert(payload.end(), with.parameters.begin(), with.parameters.end());
  payload.resize(protocol::launch_attributes_offset(with.parameters.size()));
  return of.ask(Stranger::in_stream("cuLaunchKernel", Form::kLaunch), payload);
}

std::optional<Stranger::Reply> copy(Stranger& of, Form form, std::uint64_t to, std::uint64_t from,
                                    std::uint64_t bytes, std::uint64_t transfer = 0) {
  const protocol::CopyPayload words{to, from, bytes};
  Bytes payload;
  const ByteView view = bytes_of(words);
  payload.insert(payload.end(), view.begin(), view.end());
  if (form == Form::kCopyInline) payload.resize(payload.size() + bytes);
  RecordHeader header = Stranger::in_stream("cuMemcpyHtoDAsync_v2", form);
  header.bulk = transfer;
  return of.ask(header, payload);
}

std::optional<Stranger::Reply> fill(Stranger& of, const protocol::MemsetPayload& words) {
  return of.ask(Stranger::in_stream("cuMemsetD8Async", Form::kMemset), bytes_of(words));
}

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
    header.subject = Stranger::kContext;  // One that is there, of another kind.
    if (!refused(of.ask(header, bytes_of(payload)))) return false;
    if (!refused(launch(of, {.function = foreign}))) return false;
  }
  // One that lives, in places of another kind.
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
    // The context is for the other rows.
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

// Each row as a program might call it, in turn with what there is: handles that live, and what
// pointers lead to filled with `filling`. What destroys comes last.
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
  of.call(header, bytes_of(words));  // Waits for bytes that never come.
  header.lane = 2;
  return mine != 0 && refused(of.ask(header, bytes_of(words)));
}

bool send_another_size_than_was_said(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  of.chunk(FrameKind::kChunk, {6, 0, 8192, 0}, 8192);
  const auto reply = copy(of, Form::kCopyIn, mine, 0, 4096, 6);
  // The call may come before the chunk, on another connection: then the chunk ends the session.
  return mine != 0 && (!reply.has_value() || refused(reply));
}

std::optional<Stranger::Reply> load_bundle(Stranger& of, ByteView bundle, bool right_digest) {
  protocol::ImageLoad load;
  load.handle = Stranger::kModule;
  load.image = bundle;
  if (right_digest) load.digest = sha256(bundle);
  return of.ask(Stranger::in_context("cuModuleLoadDataEx", Form::kRaw, Order::kContext),
                protocol::pack({&load, 1}));
}

bool not_loaded(const std::optional<Stranger::Reply>& reply) {
  if (!reply.has_value()) return false;
  if (reply->result != 0) return true;
  const auto outcomes = protocol::unpack_outcomes(reply->payload);
  return outcomes.ok() && outcomes->size() == 1 && outcomes->front().result != 0;
}

bool load_what_is_no_image(Stranger& of) {
  if (!of.make_context()) return false;
  const Bytes noise(4096, std::byte{0x33});
  protocol::BundleHeader header;
  header.form = 1;
  header.piece_count = 0xffff'ffff;
  Bytes many(64);
  const ByteView view = bytes_of(header);
  std::copy(view.begin(), view.end(), many.begin());
  return not_loaded(load_bundle(of, noise, true)) && not_loaded(load_bundle(of, many, true)) &&
         not_loaded(load_bundle(of, noise, false));
}

// Containers whose counts and lengths say more than is there.
bool load_fat_binaries_that_lie(Stranger& of) {
  if (!of.make_context()) return false;
  for (const auto form : {driver_abi::ImageForm::kContainer, driver_abi::ImageForm::kElf}) {
    for (const std::byte filling : {std::byte{0x00}, std::byte{0x7f}, std::byte{0xff}}) {
      Bytes piece(4096, filling);
      const std::uint32_t magic =
          form == driver_abi::ImageForm::kContainer ? 0xba55ed50u : 0x464c457fu;
      const ByteView view = bytes_of(magic);
      std::copy(view.begin(), view.end(), piece.begin());
      const driver_abi::Image image{form, 0, {ByteView(piece)}};
      if (!not_loaded(load_bundle(of, protocol::make_bundle(image), true))) return false;
    }
  }
  return true;
}

bool load_programs_without_end(Stranger& of) {
  if (!of.make_context()) return false;
  const std::string head = ".version 8.0\n.target sm_80\n.address_size 64\n";
  const std::string entry = head + ".visible .entry f()\n{\n";
  const std::string bodies[] = {
      entry + std::string(20'000, '{'),
      head + ".global .align 8 .b8 all[18446744073709551615];\n",
      head + ".global .align 4294967296 .b8 all[8];\n",
      entry + "mov.u32 " + std::string(25'000, '(') + "1" + std::string(5'000, ')') + ";\n}\n",
      entry + "bra nowhere;\n}\n",
      entry + "call f, ();\nret;\n",
      head + ".visible .entry " + std::string(28'000, 'x'),
  };
  for (const std::string& body : bodies) {
    // Bodies are looked at when they are wanted.
    const bool loaded = of.load(body) == 0;
    if (loaded && of.find_kernel("f") && !refused(launch(of, {.parameters = {}}))) return false;
    std::uint64_t module = Stranger::kModule;
    if (loaded && refused(of.ask_row("cuModuleUnload", {&module}))) return false;
  }
  return true;
}

// Registers that nobody uses cost nothing; the compiler must not make them.
bool launch_a_kernel_of_countless_registers(Stranger& of) {
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry f()\n{\n.reg .b32 %r<4294967295>;\nret;\n}\n";
  return of.make_context() &&
         (of.load(text) != 0 || !of.find_kernel("f") || launch(of, {.parameters = {}}).has_value());
}

bool launch_with_wrong_parameters(Stranger& of) {
  if (!prepared(of, "poke")) return false;
  for (const std::size_t bytes : {0u, 1u, 4u, 7u}) {
    if (!refused(launch(of, {.parameters = Bytes(bytes)}))) return false;
  }
  if (!refused(launch(of, {.layout_hash = 12345})) ||
      !refused(launch(of, {.function = Stranger::kModule}))) {
    return false;
  }
  // What is more than the kernel takes is not looked at.
  return launch(of, {.parameters = Bytes(9)}).has_value() &&
         launch(of, {.parameters = Bytes(limits::kKernelParameterBytesMax)}).has_value();
}

bool launch_shapes_that_no_device_has(Stranger& of) {
  if (!prepared(of, "poke")) return false;
  for (const std::uint32_t many : {0u, 0x8000'0000u, 0xffff'ffffu}) {
    if (!refused(launch(of, {.grid = many})) || !refused(launch(of, {.block = many}))) return false;
  }
  return refused(launch(of, {.block = 1025})) && refused(launch(of, {.shared = 0xffff'ffff})) &&
         refused(launch(of, {.shared = 1 << 30}));
}

// The kernel is stopped, and its context is lost: nothing else.
bool write_where_no_device_memory_is(Stranger& of, std::uint64_t address) {
  if (!prepared(of, "poke")) return false;
  Launch poke;
  const ByteView view = bytes_of(address);
  poke.parameters.assign(view.begin(), view.end());
  (void)launch(of, poke);
  return refused(of.ask_row("cuCtxSynchronize", {})) && refused(launch(of, poke));
}

bool leave_a_kernel_that_never_ends(Stranger& of) {
  const std::uint64_t mine = prepared(of, "forever") ? of.allocate(4096) : 0;
  if (mine == 0) return false;
  Launch forever;
  const ByteView view = bytes_of(mine);
  forever.parameters.assign(view.begin(), view.end());
  forever.grid = 8;
  (void)launch(of, forever);
  of.cut();
  return true;
}

bool say_host_functions(Stranger& of, protocol::HostFunctionStep step, std::size_t count,
                        Order order, std::uint16_t flags) {
  if (!of.make_context()) return false;
  RecordHeader header = Stranger::in_context("cuLaunchHostFunc", Form::kRaw, order);
  header.flags = flags;
  protocol::HostFunctionPayload payload;
  payload.step = step;
  for (std::size_t i = 1; i <= count; ++i) {
    payload.ticket = i;
    of.call(header, bytes_of(payload));
  }
  return true;
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

bool come_with_many_lanes(Stranger& of) {
  if (!of.make_context()) return false;
  RecordHeader header = Stranger::in_stream("cuEventRecord", Form::kEventRecord);
  header.stream = protocol::kStreamPerThread;
  header.subject = handle(HandleKind::kEvent, 50);
  const protocol::EventPayload payload;
  for (std::uint32_t lane = 0; lane < kMany; ++lane) {
    header.lane = lane;
    of.call(header, bytes_of(payload));
  }
  return true;
}

bool want_to_be_told_of_everything(Stranger& of) {
  if (!of.make_context()) return false;
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  unsigned flags = 0;
  constexpr std::uint64_t kEvent = handle(HandleKind::kEvent, 60);
  if (refused(of.ask_row("cuEventCreate", {&place, &flags}, {kEvent}))) return false;
  RecordHeader header = Stranger::in_stream("cuEventRecord", Form::kEventRecord);
  header.subject = kEvent;
  header.flags = protocol::kFlagTell;
  const protocol::EventPayload payload;
  of.flood(header, bytes_of(payload), kMany);
  return true;
}

bool acknowledge_nothing(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  if (mine == 0) return false;
  RecordHeader header = Stranger::in_stream("cuMemcpyDtoHAsync_v2", Form::kCopyOut);
  header.flags = protocol::kFlagFence;
  const protocol::CopyPayload words{0, mine, 8192};
  of.flood(header, bytes_of(words), 12'000);
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

using protocol::HostFunctionStep;

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
    {"images_that_are_none", "served", load_what_is_no_image},
    {"fat_binaries_that_lie", "served", load_fat_binaries_that_lie},
    {"ptx_with_counts_and_nesting_without_end", "served", load_programs_without_end},
    {"kernel_of_countless_registers", "served", launch_a_kernel_of_countless_registers},
    {"parameter_blocks_of_wrong_sizes", "served", launch_with_wrong_parameters},
    {"grids_blocks_and_shared_memory_out_of_range", "served", launch_shapes_that_no_device_has},
    {"kernel_that_writes_to_null", "served",
     [](Stranger& of) { return write_where_no_device_memory_is(of, kAddresses[0]); }},
    {"kernel_that_writes_where_programs_lie", "served",
     [](Stranger& of) { return write_where_no_device_memory_is(of, kAddresses[2]); }},
    {"kernel_that_writes_at_the_end_of_the_world", "served",
     [](Stranger& of) { return write_where_no_device_memory_is(of, kAddresses[6]); }},
    {"kernel_that_never_ends_and_nobody_waits", "gone", leave_a_kernel_that_never_ends},
    {"host_functions_that_never_return", "served",
     [](Stranger& of) {
       return say_host_functions(of, HostFunctionStep::kGate, 2'000, Order::kStream, 0);
     }},
    {"waits_for_host_functions_that_are_none", "served",
     [](Stranger& of) {
       return say_host_functions(of, HostFunctionStep::kWait, kMany, Order::kImmediate,
                                 protocol::kFlagFence);
     }},
    {"ends_of_host_functions_that_never_began", "served",
     [](Stranger& of) {
       return say_host_functions(of, HostFunctionStep::kRelease, kMany, Order::kImmediate, 0);
     }},
    {"host_function_steps_that_are_none", "served",
     [](Stranger& of) {
       return say_host_functions(of, static_cast<HostFunctionStep>(9), 100, Order::kImmediate, 0);
     }},
    {"returns_of_memory_that_is_not_theirs", "served", return_memory_that_is_not_theirs},
    {"credit_beyond_all_bounds", "served", ask_for_more_than_there_is},
    {"lanes_by_the_thousand", "served", come_with_many_lanes},
    {"events_that_all_want_to_be_told", "served", want_to_be_told_of_everything},
    {"answers_that_are_never_acknowledged", "acknowledges no replies|closed", acknowledge_nothing},
    {"pools_that_are_none", "served", ask_pools_that_are_none},
};

}  // namespace

std::span<const Session> calling_sessions() { return kSessions; }

}  // namespace gpurun::hostile
