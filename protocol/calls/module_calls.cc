// Module calls: packs and unpacks protocol/calls/module.capnp.
#include "protocol/calls/module_calls.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>

#include "protocol/calls/module.capnp.h"
#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

// The most kernels that one reply can hold.
constexpr std::size_t kKernelsMax = kReplyPayloadBytesMax / 32;

kj::ArrayPtr<const kj::byte> as_data(ByteView bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
kj::ArrayPtr<const kj::byte> as_data(const std::string& text) {
  return {reinterpret_cast<const kj::byte*>(text.data()), text.size()};
}

Bytes flat(capnp::MessageBuilder& builder) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
  const ByteView bytes = byte_view(words.begin(), words.size() * sizeof(capnp::word));
  return Bytes(bytes.begin(), bytes.end());
}

Status wrong(const char* what) {
  return Status(Code::kProtocol, std::string("malformed module record: ") + what);
}

// Reads a message from `payload`, or from an aligned copy when capnp needs one.
class Message {
 public:
  explicit Message(ByteView payload) {
    // Every word is read once: each list is got once, and then indexed.
    bounds_.traversalLimitInWords = 64 + 4 * (payload.size() / sizeof(capnp::word));
    bounds_.nestingLimit = 8;
    payload_ = payload;
  }

  // Runs `read(root)`, which returns whether every field was within its bounds.
  template <typename Root, typename Read>
  Status visit(Read read) {
    if (payload_.empty() || payload_.size() % sizeof(capnp::word) != 0) return wrong("its length");
    const auto* words = reinterpret_cast<const capnp::word*>(payload_.data());
    if (reinterpret_cast<std::uintptr_t>(words) % alignof(std::uint64_t) != 0) {
      return wrong("its alignment");
    }
    try {
      capnp::FlatArrayMessageReader reader(
          kj::arrayPtr(words, payload_.size() / sizeof(capnp::word)), bounds_);
      return read(reader.getRoot<Root>()) ? Status() : wrong("a field is out of its bounds");
    } catch (const kj::Exception& exception) {
      return wrong(exception.getDescription().cStr());
    }
  }

 private:
  capnp::ReaderOptions bounds_;
  ByteView payload_;
};

void write(const KernelDescription& kernel, wire::Kernel::Builder to) {
  to.setName(as_data(kernel.name));
  to.setDescribed(kernel.described);
  to.setLayoutKnown(kernel.layout_known);
  auto parameters = to.initParameters(static_cast<unsigned>(kernel.parameters.size()));
  for (unsigned i = 0; i < parameters.size(); ++i) {
    parameters[i].setOffset(kernel.parameters[i].offset);
    parameters[i].setBytes(kernel.parameters[i].bytes);
  }
  auto attributes = to.initAttributes(static_cast<unsigned>(kernel.attributes.size()));
  for (unsigned i = 0; i < attributes.size(); ++i) attributes.set(i, kernel.attributes[i]);
}

bool read(capnp::Data::Reader from, std::size_t bytes_max, std::string& into) {
  if (from.size() > bytes_max) return false;
  into.assign(reinterpret_cast<const char*>(from.begin()), from.size());
  return true;
}

bool read(wire::Kernel::Reader from, KernelDescription& kernel) {
  if (!read(from.getName(), limits::kStringBytesMax, kernel.name)) return false;
  if (kernel.name.find('\0') != std::string::npos) return false;
  kernel.described = from.getDescribed();
  kernel.layout_known = from.getLayoutKnown();
  const auto parameters = from.getParameters();
  const auto attributes = from.getAttributes();
  if (parameters.size() > kKernelParametersMax) return false;
  if (attributes.size() > kFunctionAttributes) return false;
  kernel.parameters.reserve(parameters.size());
  for (const auto parameter : parameters) {
    const KernelParameter each{parameter.getOffset(), parameter.getBytes()};
    // A launch copies by these numbers, so none may reach beyond the largest block.
    if (each.offset > limits::kKernelParameterBytesMax ||
        each.bytes > limits::kKernelParameterBytesMax - each.offset) {
      return false;
    }
    kernel.parameters.push_back(each);
  }
  for (const auto value : attributes) kernel.attributes.push_back(value);
  return true;
}

bool read(wire::ImageLoad::Reader from, ImageLoad& load) {
  load.handle = from.getHandle();
  if (from.getDigest().size() != load.digest.size()) return false;
  std::memcpy(load.digest.data(), from.getDigest().begin(), load.digest.size());
  load.image = byte_view(from.getImage().begin(), from.getImage().size());
  const auto options = from.getOptions();
  if (options.size() > kJitOptionsMax) return false;
  for (const auto option : options) {
    load.options.push_back({option.getId(), option.getValue()});
  }
  load.info_log_bytes = from.getInfoLogBytes();
  load.error_log_bytes = from.getErrorLogBytes();
  return load.info_log_bytes <= kJitLogBytesMax && load.error_log_bytes <= kJitLogBytesMax;
}

bool read(wire::ImageOutcome::Reader from, ImageOutcome& outcome) {
  outcome.result = from.getResult();
  outcome.missing = from.getMissing();
  outcome.kept = from.getKept();
  outcome.device = from.getDevice();
  outcome.complete = from.getComplete();
  const auto kernels = from.getKernels();
  if (kernels.size() > kKernelsMax) return false;
  outcome.kernels.resize(kernels.size());
  for (unsigned i = 0; i < kernels.size(); ++i) {
    if (!read(kernels[i], outcome.kernels[i])) return false;
  }
  return read(from.getInfoLog(), kJitLogBytesMax, outcome.info_log) &&
         read(from.getErrorLog(), kJitLogBytesMax, outcome.error_log);
}

void write(const ImageLoad& load, wire::ImageLoad::Builder to) {
  to.setHandle(load.handle);
  to.setDigest(as_data(bytes_of(load.digest)));
  to.setImage(as_data(load.image));
  auto options = to.initOptions(static_cast<unsigned>(load.options.size()));
  for (unsigned i = 0; i < options.size(); ++i) {
    options[i].setId(load.options[i].id);
    options[i].setValue(load.options[i].value);
  }
  to.setInfoLogBytes(load.info_log_bytes);
  to.setErrorLogBytes(load.error_log_bytes);
}

void write(const ImageOutcome& outcome, wire::ImageOutcome::Builder to) {
  to.setResult(outcome.result);
  to.setMissing(outcome.missing);
  to.setKept(outcome.kept);
  to.setDevice(outcome.device);
  to.setComplete(outcome.complete);
  auto kernels = to.initKernels(static_cast<unsigned>(outcome.kernels.size()));
  for (unsigned i = 0; i < kernels.size(); ++i) write(outcome.kernels[i], kernels[i]);
  to.setInfoLog(as_data(outcome.info_log));
  to.setErrorLog(as_data(outcome.error_log));
}

}  // namespace

// FNV-1a over the numbers (public domain): a check against stale tables, not against an attacker.
std::uint64_t layout_hash(std::span<const KernelParameter> parameters) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint32_t number) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (number >> shift & 0xff)) * 0x100000001b3;
    }
  };
  add(static_cast<std::uint32_t>(parameters.size()));
  for (const KernelParameter& parameter : parameters) {
    add(parameter.offset);
    add(parameter.bytes);
  }
  return hash == 0 ? 1 : hash;
}

std::size_t parameter_block_bytes(std::span<const KernelParameter> parameters) noexcept {
  std::size_t end = 0;
  for (const KernelParameter& each : parameters) {
    end = std::max(end, std::size_t{each.offset} + each.bytes);
  }
  return end;
}

Bytes pack(std::span<const ImageLoad> loads) {
  capnp::MallocMessageBuilder builder;
  auto list = builder.initRoot<wire::LoadRequest>().initLoads(static_cast<unsigned>(loads.size()));
  for (unsigned i = 0; i < list.size(); ++i) write(loads[i], list[i]);
  return flat(builder);
}

Bytes pack(std::span<const ImageOutcome> outcomes) {
  capnp::MallocMessageBuilder builder;
  auto list =
      builder.initRoot<wire::LoadReply>().initOutcomes(static_cast<unsigned>(outcomes.size()));
  for (unsigned i = 0; i < list.size(); ++i) write(outcomes[i], list[i]);
  return flat(builder);
}

Bytes pack(const NameRequest& request) {
  capnp::MallocMessageBuilder builder;
  auto root = builder.initRoot<wire::NameRequest>();
  root.setOwner(request.owner);
  root.setHandle(request.handle);
  root.setName(as_data(request.name));
  return flat(builder);
}

Bytes pack(const KernelDescription& kernel) {
  capnp::MallocMessageBuilder builder;
  write(kernel, builder.initRoot<wire::NameReply>().initKernel());
  return flat(builder);
}

Bytes pack(const KernelNode& node) {
  capnp::MallocMessageBuilder builder;
  auto root = builder.initRoot<wire::KernelNode>();
  root.setGraph(node.graph);
  root.setNode(node.node);
  auto dependencies = root.initDependencies(static_cast<unsigned>(node.dependencies.size()));
  for (unsigned i = 0; i < dependencies.size(); ++i) dependencies.set(i, node.dependencies[i]);
  root.setContext(node.context);
  auto launch = root.initLaunch(static_cast<unsigned>(sizeof node.launch + node.block.size()));
  std::memcpy(launch.begin(), &node.launch, sizeof node.launch);
  if (!node.block.empty()) {
    std::memcpy(launch.begin() + sizeof node.launch, node.block.data(), node.block.size());
  }
  return flat(builder);
}

Result<std::vector<ImageLoad>> unpack_loads(ByteView payload) {
  std::vector<ImageLoad> loads;
  const Status status = Message(payload).visit<wire::LoadRequest>([&](auto root) {
    const auto list = root.getLoads();
    if (list.size() == 0 || list.size() > kLoadsMax) return false;
    loads.resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i) {
      if (!read(list[i], loads[i])) return false;
    }
    return true;
  });
  if (!status.ok()) return status;
  return loads;
}

Result<std::vector<ImageOutcome>> unpack_outcomes(ByteView payload) {
  std::vector<ImageOutcome> outcomes;
  const Status status = Message(payload).visit<wire::LoadReply>([&](auto root) {
    const auto list = root.getOutcomes();
    if (list.size() > kLoadsMax) return false;
    outcomes.resize(list.size());
    for (unsigned i = 0; i < list.size(); ++i) {
      if (!read(list[i], outcomes[i])) return false;
    }
    return true;
  });
  if (!status.ok()) return status;
  return outcomes;
}

Result<NameRequest> unpack_name_request(ByteView payload) {
  NameRequest request;
  const Status status = Message(payload).visit<wire::NameRequest>([&](auto root) {
    request.owner = root.getOwner();
    request.handle = root.getHandle();
    return read(root.getName(), limits::kStringBytesMax, request.name) &&
           request.name.find('\0') == std::string::npos;
  });
  if (!status.ok()) return status;
  return request;
}

Result<KernelDescription> unpack_kernel(ByteView payload) {
  KernelDescription kernel;
  const Status status = Message(payload).visit<wire::NameReply>(
      [&](auto root) { return read(root.getKernel(), kernel); });
  if (!status.ok()) return status;
  return kernel;
}

Result<KernelNode> unpack_kernel_node(ByteView payload) {
  KernelNode node;
  const Status status = Message(payload).visit<wire::KernelNode>([&](auto root) {
    node.graph = root.getGraph();
    node.node = root.getNode();
    node.context = root.getContext();
    const auto dependencies = root.getDependencies();
    if (dependencies.size() > limits::kArrayCountMax) return false;
    for (const std::uint64_t each : dependencies) node.dependencies.push_back(each);
    const auto launch = root.getLaunch();
    if (launch.size() < sizeof node.launch) return false;
    std::memcpy(&node.launch, launch.begin(), sizeof node.launch);
    const ByteView block = byte_view(launch.begin(), launch.size()).subspan(sizeof node.launch);
    node.block.assign(block.begin(), block.end());
    return node.launch.attribute_count == 0 && node.launch.parameter_bytes == block.size() &&
           block.size() <= limits::kKernelParameterBytesMax;
  });
  if (!status.ok()) return status;
  return node;
}

std::size_t packed_bytes(const KernelDescription& kernel) noexcept {
  // Struct, three list pointers, and the lists, each rounded up to words.
  return 64 + kernel.name.size() + 8 + kernel.parameters.size() * 8 +
         (kernel.attributes.size() * 4 + 8);
}

std::string_view outcome_format() noexcept { return GPURUN_OUTCOME_FORMAT; }

}  // namespace gpurun::protocol
