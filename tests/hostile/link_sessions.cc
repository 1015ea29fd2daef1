// Link sessions: endless links, links of other kinds, invalid inputs or inputs with a false length,
// and images that do not exist.
#include "driver_abi/cuda_abi.h"
#include "protocol/calls/link_calls.h"
#include "tests/hostile/acts.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

constexpr std::uint64_t kLink = handle(HandleKind::kLinkState, 31);

std::optional<Stranger::Reply> ask_link(Stranger& of, const char* symbol, ByteView payload) {
  return of.ask(Stranger::in_context(symbol, Form::kRaw, Order::kContext), payload);
}

// The driver's answer is in the reply.
int outcome(const std::optional<Stranger::Reply>& reply) {
  if (!reply.has_value()) return -1;
  if (reply->result != 0) return reply->result;
  const auto unpacked = protocol::unpack_link_reply(reply->payload);
  return unpacked.ok() ? unpacked->result : -1;
}

int create(Stranger& of, std::uint64_t state) {
  protocol::LinkCreate request;
  request.state = state;
  // Addresses in the worker's memory, to which the driver would write.
  for (const int id : {2, 3, 5, 18, 19, 20}) request.options.push_back({id, 0x7fff'ffff'f000});
  request.info_log_bytes = request.error_log_bytes = protocol::kJitLogBytesMax;
  return outcome(ask_link(of, "cuLinkCreate_v2", protocol::pack(request)));
}

int add(Stranger& of, std::uint64_t state, std::uint32_t type, std::string_view data) {
  protocol::LinkInput input;
  input.state = state;
  input.type = type;
  for (const int id : {2, 3, 5, 18, 19, 20}) input.options.push_back({id, 0x7fff'ffff'f000});
  input.data = byte_view(data.data(), data.size());
  return outcome(ask_link(of, "cuLinkAddData_v2", protocol::pack(input)));
}

int complete(Stranger& of, std::uint64_t state, std::uint64_t offset) {
  const protocol::LinkComplete request{state, offset};
  return outcome(ask_link(of, "cuLinkComplete", bytes_of(request)));
}

bool destroy(Stranger& of, std::uint64_t state) {
  const auto reply = of.ask_row("cuLinkDestroy", {&state}, {}, Order::kOrderedHost);
  return reply.has_value() && reply->result == 0;
}

bool open_links_without_end(Stranger& of) {
  if (!of.make_context()) return false;
  std::size_t made = 0;
  for (std::uint64_t i = 0; i < limits::kLinkStatesMax + 16; ++i) {
    const int result = create(of, handle(HandleKind::kLinkState, 1000 + i));
    if (result != 0 && result != 2) return false;
    made += result == 0 ? 1 : 0;
  }
  return made == limits::kLinkStatesMax;
}

bool name_links_that_are_none(Stranger& of) {
  if (!of.make_context() || of.load(kPtx) != 0 || create(of, kLink) != 0) return false;
  for (const std::uint64_t wrong :
       {Stranger::kContext, Stranger::kModule, handle(HandleKind::kLinkState, 77), std::uint64_t{0},
        std::uint64_t{0x7fff'ffff'f000}, ~std::uint64_t{0}}) {
    if (add(of, wrong, 1, kPtx) == 0 || complete(of, wrong, 0) == 0 || create(of, wrong) == 0) {
      if (wrong != handle(HandleKind::kLinkState, 77)) return false;
    }
    if (wrong != 0 && wrong != handle(HandleKind::kLinkState, 77) && destroy(of, wrong)) {
      return false;
    }
  }
  return destroy(of, kLink) && add(of, kLink, 1, kPtx) != 0 && complete(of, kLink, 0) != 0 &&
         !destroy(of, kLink);
}

// Unknown types, headers without the parts that they announce, and archives cut anywhere.
bool add_what_is_no_input(Stranger& of) {
  if (!of.make_context() || create(of, kLink) != 0) return false;
  constexpr std::string_view kStarts[] = {
      "\x7f"
      "ELF",
      "!<arch>\n",
      "\x50\xed\x55\xba",
      ".version",
      "",
      "\xff\xff\xff\xff"};
  for (const std::uint32_t type : {0u, 2u, 3u, 4u, 5u, 6u, 99u, ~0u}) {
    for (const std::string_view start : kStarts) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{200}}) {
        // An almost empty archive adds nothing.
        if (start.starts_with('!') && bytes < 200) continue;
        const std::string data = std::string(start) + std::string(bytes, '\xff');
        if (add(of, kLink, type, data) == 0) return false;
      }
    }
  }
  return add(of, kLink, 1, kPtx) == 0 && complete(of, kLink, 0) == 0;
}

bool want_more_of_an_image_than_there_is(Stranger& of) {
  if (!of.make_context() || create(of, kLink) != 0) return false;
  for (const std::uint64_t offset : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
    if (complete(of, kLink, offset) == 0) return false;
  }
  if (add(of, kLink, 1, kPtx) != 0 || complete(of, kLink, 0) != 0) return false;
  for (const std::uint64_t offset :
       {std::uint64_t{1} << 20, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    if (complete(of, kLink, offset) == 0) return false;
  }
  return complete(of, kLink, 16) == 0;
}

bool name_the_workers_files(Stranger& of) {
  if (!of.make_context() || create(of, kLink) != 0) return false;
  protocol::LinkInput input;
  input.state = kLink;
  input.named = true;
  input.name = "/etc/passwd";
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  const char* path = "/etc/passwd";
  const auto loaded = of.ask_row("cuModuleLoad", {&place, &path}, {Stranger::kModule});
  // The answer must not reveal whether the file exists.
  return refused(ask_link(of, "cuLinkAddFile_v2", protocol::pack(input))) && loaded.has_value() &&
         loaded->result == CUDA_ERROR_NOT_SUPPORTED;
}

constexpr Session kSessions[] = {
    {"links_without_end", "served", open_links_without_end},
    {"links_that_are_none_or_no_more", "served", name_links_that_are_none},
    {"inputs_of_links_that_are_none", "served", add_what_is_no_input},
    {"images_beyond_their_end", "served", want_more_of_an_image_than_there_is},
    {"files_of_the_worker_as_images", "served", name_the_workers_files},
};

}  // namespace

std::span<const Session> link_sessions() { return kSessions; }

}  // namespace gpurun::hostile
