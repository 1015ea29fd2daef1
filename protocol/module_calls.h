// What the two ends say about code images and kernels: the records of protocol/module.capnp as
// plain structures. Everything that a peer sent is bounded here; handles are the caller's to check.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"
#include "protocol/record.h"

namespace gpurun::protocol {

// Image bundles up to here travel inside their record.
inline constexpr std::size_t kInlineImageBytesMax = std::size_t{32} << 10;
// Images that one request may load.
inline constexpr std::size_t kLoadsMax = 64;
// Kernels that a reply to a load describes (names go on as far as the reply has room): asking a
// driver about a kernel makes it load that kernel's code.
inline constexpr std::size_t kDescribedKernelsMax = 256;
// CUfunction_attribute values of CUDA 13 (cuda.h): 0 to 15.
inline constexpr std::size_t kFunctionAttributes = 16;
// Parameters of one kernel: each takes at least a byte of limits::kKernelParameterBytesMax.
inline constexpr std::size_t kKernelParametersMax = 32'764;
inline constexpr std::size_t kJitOptionsMax = 64;
// What a program gets of the compiler's logs, each.
inline constexpr std::size_t kJitLogBytesMax = std::size_t{32} << 10;

// One parameter of a kernel, as cuKernelGetParamInfo tells it.
struct KernelParameter {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  bool operator==(const KernelParameter&) const = default;
};

// What LaunchPayload::layout_hash holds for a kernel of these parameters. Never 0.
std::uint64_t layout_hash(std::span<const KernelParameter> parameters) noexcept;
// Bytes of a parameter block: the end of the last parameter.
std::size_t parameter_block_bytes(std::span<const KernelParameter> parameters) noexcept;

struct KernelDescription {
  std::string name;
  bool described = false;     // What follows is filled in.
  bool layout_known = false;  // The driver could tell `parameters`.
  std::vector<KernelParameter> parameters;
  std::vector<std::int32_t> attributes;  // By CUfunction_attribute, at most kFunctionAttributes.
};

struct JitOption {
  std::int32_t id = 0;
  std::uint64_t value = 0;
};

struct ImageLoad {
  std::uint64_t handle = 0;
  Sha256Digest digest{};
  ByteView image;  // Borrowed; after unpacking it points into the payload that was unpacked.
  std::vector<JitOption> options;
  std::uint32_t info_log_bytes = 0;
  std::uint32_t error_log_bytes = 0;
};

struct ImageOutcome {
  int result = 0;
  bool missing = false;
  bool kept = false;
  int device = 0;
  bool complete = false;
  std::vector<KernelDescription> kernels;
  std::string info_log;
  std::string error_log;
};

struct NameRequest {
  std::uint64_t owner = 0;
  std::uint64_t handle = 0;
  std::string name;
};

// A kernel node of a graph.
struct KernelNode {
  std::uint64_t graph = 0;
  std::uint64_t node = 0;
  std::vector<std::uint64_t> dependencies;  // At most limits::kArrayCountMax.
  std::uint64_t context = 0;
  LaunchPayload launch;  // Without attributes.
  Bytes block;           // launch.parameter_bytes of them.
};

// Packing does not fail; whoever sends bounds the result (kRecordPayloadBytesMax).
Bytes pack(std::span<const ImageLoad> loads);
Bytes pack(std::span<const ImageOutcome> outcomes);
Bytes pack(const NameRequest& request);
Bytes pack(const KernelDescription& kernel);
Bytes pack(const KernelNode& node);

// kProtocol for what is no such message or is over a bound. `payload` must be private.
Result<std::vector<ImageLoad>> unpack_loads(ByteView payload);
Result<std::vector<ImageOutcome>> unpack_outcomes(ByteView payload);
// Names how this build packs and understands outcomes, for who keeps some for a later build:
// another name, and they are not to be unpacked.
std::string_view outcome_format() noexcept;
Result<NameRequest> unpack_name_request(ByteView payload);
Result<KernelDescription> unpack_kernel(ByteView payload);
Result<KernelNode> unpack_kernel_node(ByteView payload);

// About what `kernel` takes in a packed reply: for whoever fills one up to its bound.
std::size_t packed_bytes(const KernelDescription& kernel) noexcept;

}  // namespace gpurun::protocol
