// Acts: payloads as our client would make them, except for the given values.
#include "tests/hostile/acts.h"

namespace gpurun::hostile {

const std::string_view kPtx =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry poke(.param .u64 to)\n{\n.reg .b64 %a;\n.reg .b32 %v;\n"
    "ld.param.u64 %a, [to];\nmov.u32 %v, 7;\nst.global.u32 [%a], %v;\nret;\n}\n"
    ".visible .entry forever(.param .u64 to)\n{\n.reg .b64 %a;\n.reg .b32 %v;\n"
    "ld.param.u64 %a, [to];\nagain:\nld.volatile.global.u32 %v, [%a];\nbra again;\n}\n";

bool refused(const std::optional<Stranger::Reply>& reply) {
  return reply.has_value() && reply->result != 0;
}

bool prepared(Stranger& of, const char* kernel) {
  return of.make_context() && of.load(kPtx) == 0 && of.find_kernel(kernel);
}

std::optional<Stranger::Reply> launch(Stranger& of, const Launch& with) {
  protocol::LaunchPayload head;
  head.function = with.function;
  for (auto& one : head.grid) one = with.grid;
  head.block[0] = with.block;
  head.shared_bytes = with.shared;
  head.parameter_bytes = static_cast<std::uint32_t>(with.parameters.size());
  head.layout_hash = with.layout_hash;
  head.attribute_count = with.attribute_count;
  Bytes payload;
  const ByteView view = bytes_of(head);
  payload.insert(payload.end(), view.begin(), view.end());
  payload.insert(payload.end(), with.parameters.begin(), with.parameters.end());
  payload.resize(protocol::launch_attributes_offset(with.parameters.size()));
  payload.insert(payload.end(), with.attributes.begin(), with.attributes.end());
  return of.ask(Stranger::in_stream("cuLaunchKernel", Form::kLaunch), payload);
}

std::optional<Stranger::Reply> copy(Stranger& of, Form form, std::uint64_t to, std::uint64_t from,
                                    std::uint64_t bytes, std::uint64_t transfer) {
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

}  // namespace gpurun::hostile
