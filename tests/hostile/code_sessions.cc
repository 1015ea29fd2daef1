// Code sessions: invalid or endless images and PTX, and launches that no device can make.
#include <algorithm>
#include <string>

#include "driver_abi/image_length.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/calls/module_calls.h"
#include "tests/hostile/acts.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

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

// Containers with counts and lengths that exceed their bytes.
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
    // The body is compiled when it is first used.
    const bool loaded = of.load(body) == 0;
    if (loaded && of.find_kernel("f") && !refused(launch(of, {.parameters = {}}))) return false;
    std::uint64_t module = Stranger::kModule;
    if (loaded && refused(of.ask_row("cuModuleUnload", {&module}))) return false;
  }
  return true;
}

// Unused registers cost nothing, so the compiler must not create them.
bool launch_a_kernel_of_countless_registers(Stranger& of) {
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry f()\n{\n.reg .b32 %r<4294967295>;\nret;\n}\n";
  return of.make_context() &&
         (of.load(text) != 0 || !of.find_kernel("f") || launch(of, {.parameters = {}}).has_value());
}

bool launch_with_wrong_parameters(Stranger& of) {
  if (!prepared(of, "poke")) return false;
  if (!refused(launch(of, {.parameters = Bytes()})) ||
      !refused(launch(of, {.layout_hash = 12345})) ||
      !refused(launch(of, {.function = Stranger::kModule}))) {
    return false;
  }
  // Bytes beyond the kernel's parameters are ignored, and those that lack are 0. The kernel faults.
  for (const std::size_t bytes : {1u, 4u, 7u}) {
    if (!launch(of, {.parameters = Bytes(bytes)}).has_value()) return false;
  }
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

// Only the kernel stops and its context is lost.
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

protocol::LaunchAttribute attribute(std::uint32_t id, std::uint32_t first, std::uint64_t rest = 0) {
  protocol::LaunchAttribute made{};
  made.id = id;
  for (std::size_t at = 0; at < sizeof made.value; at += 8) {
    const ByteView view = bytes_of(rest);
    std::copy(view.begin(), view.end(), made.value + at);
  }
  const ByteView view = bytes_of(first);
  std::copy(view.begin(), view.end(), made.value);
  return made;
}

Launch with_attribute(const protocol::LaunchAttribute& one) {
  Launch made;
  made.attribute_count = 1;
  const ByteView view = bytes_of(one);
  made.attributes.assign(view.begin(), view.end());
  return made;
}

// Cluster sizes that overflow or that no grid has, in launches and in queries about them.
bool launch_clusters_that_no_device_has(Stranger& of) {
  constexpr std::uint32_t kCluster = 4, kPreferred = 11;  // CU_LAUNCH_ATTRIBUTE_..._DIMENSION.
  if (!prepared(of, "poke")) return false;
  for (const std::uint32_t id : {kCluster, kPreferred}) {
    for (const std::uint32_t size : {0u, 3u, 0x8000'0000u, 0xffff'ffffu}) {
      const std::uint64_t rest = std::uint64_t{size} << 32 | size;
      const Launch made = with_attribute(attribute(id, size, rest));
      if (size > 3 && id == kCluster && !refused(launch(of, made))) return false;
      if (size <= 3 || id != kCluster) (void)launch(of, made);
      for (const char* symbol :
           {"cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialClusterSize"}) {
        protocol::LaunchPayload head;
        head.function = Stranger::kFunction;
        head.attribute_count = 1;
        Bytes payload;
        for (const ByteView part : {bytes_of(head), ByteView(made.attributes)}) {
          payload.insert(payload.end(), part.begin(), part.end());
        }
        const auto question = Stranger::in_context(symbol, Form::kRaw, Order::kContext);
        if (!of.ask(question, payload).has_value()) return false;
        // A payload that is shorter than its counts say.
        payload.resize(payload.size() - 8);
        if (!refused(of.ask(question, payload))) return false;
      }
    }
  }
  return true;
}

// Attributes that are unknown, or that hold pointers or handles that do not exist.
bool launch_with_attributes_that_lie(Stranger& of) {
  if (!prepared(of, "poke")) return false;
  constexpr std::uint32_t kProgrammaticEvent = 7, kCompletionEvent = 12;
  for (const std::uint32_t id : {kProgrammaticEvent, kCompletionEvent, 0u, 99u, 0xffff'ffffu}) {
    for (const std::uint64_t value :
         {kAddresses[3], Stranger::kContext, handle(HandleKind::kEvent, 4'000'000)}) {
      if (!refused(launch(
              of, with_attribute(attribute(id, static_cast<std::uint32_t>(value), value)))) &&
          id != 0) {
        return false;
      }
    }
  }
  return true;
}

constexpr std::uint64_t kGraph = handle(HandleKind::kGraph, 9);
constexpr std::uint64_t kNode = handle(HandleKind::kGraphNode, 10);

bool add_kernel_node(Stranger& of) {
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  unsigned flags = 0;
  if (!prepared(of, "poke") || refused(of.ask_row("cuGraphCreate", {&place, &flags}, {kGraph}))) {
    return false;
  }
  protocol::KernelNode node;
  node.graph = kGraph;
  node.node = kNode;
  node.launch.function = Stranger::kFunction;
  for (int i = 0; i < 3; ++i) node.launch.grid[i] = node.launch.block[i] = 1;
  node.block = Bytes(8);
  node.launch.parameter_bytes = 8;
  const auto header = Stranger::in_context("cuGraphAddKernelNode_v2", Form::kRaw, Order::kContext);
  const auto added = of.ask(header, protocol::pack(node));
  return added.has_value() && added->result == 0;
}

// Values that are pointers to the driver. A refusal by the driver would be another code: it would
// have followed them.
bool set_attributes_that_lie(Stranger& of) {
  constexpr int kInvalidValue = 1, kNotSupported = 801;
  constexpr std::uint32_t kDeviceUpdatable = 13;
  if (!add_kernel_node(of)) return false;
  std::uint64_t subjects[] = {kNode, 0};
  const char* const rows[][2] = {{"cuGraphKernelNodeSetAttribute", "cuGraphKernelNodeGetAttribute"},
                                 {"cuStreamSetAttribute", "cuStreamGetAttribute"}};
  for (int kind = 0; kind < 2; ++kind) {
    for (const char* const row : rows[kind]) {
      for (std::uint32_t id : {0u, 7u, 12u, kDeviceUpdatable, 15u, 99u, 0xffff'ffffu}) {
        protocol::LaunchAttribute one = attribute(id, 1, kAddresses[3]);
        void* value = one.value;
        const auto reply = of.ask_row(row, {&subjects[kind], &id, &value});
        const int due = kind == 0 && id == kDeviceUpdatable ? kNotSupported : kInvalidValue;
        if (!reply.has_value() || reply->result != due) return false;
      }
      std::uint32_t priority = 8;  // It has no handle.
      protocol::LaunchAttribute one = attribute(priority, 0);
      void* value = one.value;
      const auto reply = of.ask_row(row, {&subjects[kind], &priority, &value});
      if (!reply.has_value() || reply->result != 0) return false;
    }
  }
  return true;
}

constexpr Session kSessions[] = {
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
    {"clusters_that_no_device_has", "served", launch_clusters_that_no_device_has},
    {"launch_attributes_that_lie", "served", launch_with_attributes_that_lie},
    {"set_attributes_that_lie", "served", set_attributes_that_lie},
    {"launch_attributes_that_do_not_come", "launch of another size",
     [](Stranger& of) { return prepared(of, "poke") && !launch(of, {.attribute_count = 9}); }},
};

}  // namespace

std::span<const Session> code_sessions() { return kSessions; }

}  // namespace gpurun::hostile
