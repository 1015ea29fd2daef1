// Module calls: the messages about code images and kernels, as plain structures for
// protocol/calls/module.capnp. Everything from a peer is bounded here. The caller must check
// handles.
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
#include "protocol/log/record.h"

namespace gpurun::protocol {

// Image bundles up to this size travel inside their record.
inline constexpr std::size_t kInlineImageBytesMax = std::size_t{32} << 10;
// Images that one request may load.
inline constexpr std::size_t kLoadsMax = 64;
// Kernels that a reply to a load describes. Names go on as far as the reply has room. The number is
// limited because a driver that is asked about a kernel loads its code.
inline constexpr std::size_t kDescribedKernelsMax = 256;
// CUfunction_attribute values of CUDA 13 (cuda.h): 0 to 15.
inline constexpr std::size_t kFunctionAttributes = 16;
// Parameters of one kernel. Each takes at least one byte of limits::kKernelParameterBytesMax.
inline constexpr std::size_t kKernelParametersMax = 32'764;
inline constexpr std::size_t kJitOptionsMax = 64;
// The most bytes of each compiler log that a program gets.
inline constexpr std::size_t kJitLogBytesMax = std::size_t{32} << 10;

// One parameter of a kernel, as cuKernelGetParamInfo reports it.
struct KernelParameter {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  bool operator==(const KernelParameter&) const = default;
};

// LaunchPayload::layout_hash for a kernel with `parameters`. Never 0.
std::uint64_t layout_hash(std::span<const KernelParameter> parameters) noexcept;
// Size of a parameter block in bytes: the end of its last parameter.
std::size_t parameter_block_bytes(std::span<const KernelParameter> parameters) noexcept;

struct KernelDescription {
  std::string name;
  bool described = false;     // The fields below are filled in.
  bool layout_known = false;  // The driver reported `parameters`.
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
  ByteView image;  // Borrowed. After unpacking it points into the payload.
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
  Bytes block;           // launch.parameter_bytes of it.
};

// Packing does not fail. The sender must bound the result (kRecordPayloadBytesMax).
Bytes pack(std::span<const ImageLoad> loads);
Bytes pack(std::span<const ImageOutcome> outcomes);
Bytes pack(const NameRequest& request);
Bytes pack(const KernelDescription& kernel);
Bytes pack(const KernelNode& node);

// kProtocol: not such a message, or over a bound. `payload` must be private.
Result<std::vector<ImageLoad>> unpack_loads(ByteView payload);
Result<std::vector<ImageOutcome>> unpack_outcomes(ByteView payload);
// Names the format in which this build packs outcomes. Outcomes that were stored under another name
// must not be unpacked.
std::string_view outcome_format() noexcept;
Result<NameRequest> unpack_name_request(ByteView payload);
Result<KernelDescription> unpack_kernel(ByteView payload);
Result<KernelNode> unpack_kernel_node(ByteView payload);

// About the size of `kernel` in a packed reply, for a caller that fills a reply up to its bound.
std::size_t packed_bytes(const KernelDescription& kernel) noexcept;

}  // namespace gpurun::protocol
