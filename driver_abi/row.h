// Row: everything that the project knows about one entry point of CUDA's driver API.
//
// driver_abi/cuda_driver.toml is the source. driver_abi/apigen writes the rows into the build
// folder. Client stubs, the generic wire codec, server dispatch, the proc-address map, the null
// device, statistics names and docs/api-coverage.md all read this one description. So each fact
// about a function has one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gpurun::driver_abi {

// How a call completes for the program that made it (docs/architecture.md, section 3).
enum class Completion : std::uint8_t {
  kLocal,        // Answered in the client.
  kAsync,        // Appended to the command log. The program goes on at once.
  kFence,        // The client waits for the reply.
  kConditional,  // Decided per call by a named predicate in the custom function.
  kRefused,      // CUDA_ERROR_NOT_SUPPORTED and one log line. `reason` has the reason.
};

enum class Implementation : std::uint8_t {
  kGenerated,  // Packed and dispatched from this description alone.
  kCustom,     // A hand-written function of that name on the client, and a handler on the server.
};

// The variant of a function. CUDA exports stream-taking functions twice (CUDA manual, "API
// synchronization behavior": per-thread default stream).
enum class StreamVariant : std::uint8_t { kPlain, kPtds, kPtsz };

// Kinds of handles that cross the wire. The client mints them unless noted.
enum class HandleKind : std::uint8_t {
  kNone,
  kContext,
  kModule,
  kFunction,
  kKernel,
  kLibrary,
  kStream,
  kEvent,
  kArray,
  kMipmappedArray,
  kTextureReference,
  kSurfaceReference,
  kGraph,
  kGraphNode,
  kGraphExec,
  kMemoryPool,
  kAllocation,
  kLinkState,
  kExternalMemory,
  kExternalSemaphore,
  kGraphicsResource,
  kUserObject,
  kGreenContext,
  kDevResourceDescriptor,
  kAsyncCallback,
  kLogsCallback,
  // Values that also travel inside kernel parameters. They are the server's own and never minted.
  kTextureObject,
  kSurfaceObject,
  kGraphConditional,
};

enum class Direction : std::uint8_t { kIn, kOut, kInOut };

// The form of a parameter, for packing.
enum class Shape : std::uint8_t {
  kScalar,   // By value: integer, enum, float or device address of `element_bytes`.
  kStruct,   // By value: an aggregate of `element_bytes` (passed by the ABI's rules, by libffi).
  kHandle,   // By value: a handle of `handle`.
  kPointee,  // Pointer to one object of `element_bytes` without pointers or handles inside.
  kArray,    // Pointer to `count` objects of `element_bytes`, without pointers or handles inside.
  kHandlePointee,  // Pointer to one handle.
  kHandleArray,    // Pointer to `count` handles.
  kString,         // const char*, NUL-terminated, at most limits::kStringBytesMax.
  kStringBuffer,   // char* that the callee fills. `count` is its size parameter.
  kOpaque,  // Anything else: pointers kept by CUDA, callbacks, nested structures. Custom rows only.
};

// How libffi passes a kScalar.
enum class ScalarClass : std::uint8_t { kSigned, kUnsigned, kFloat, kPointerSized };

inline constexpr std::uint8_t kNoParameter = 0xff;

struct Parameter {
  const char* name;
  const char* type;  // As in the prototype, for messages and documentation.
  Direction direction;
  Shape shape;
  ScalarClass scalar_class;      // kScalar only.
  HandleKind handle;             // kHandle*, else kNone.
  std::uint32_t element_bytes;   // Size of one object. 8 for handles.
  std::uint8_t count_parameter;  // kArray, kHandleArray, kStringBuffer: index of the count, else
                                 // kNoParameter. A count behind a pointer (in-out) is allowed.
  std::int8_t count_offset;      // Added to the count parameter's value: 0, or -1, -2 where the
                                 // function reads fewer elements (tensor maps). Never below 0.
  std::uint32_t fixed_count;     // kArray with a count that the prototype fixes, else 0.
  bool nullable;                 // NULL is valid input. Otherwise NULL gives `null_error`. Also for
                                 // kHandle. An array with count 0 may be NULL in any case.
};

struct Row {
  const char* symbol;          // "cuMemcpyHtoDAsync_v2_ptsz"
  const char* base;            // "cuMemcpyHtoDAsync": the key of cuGetProcAddress.
  std::uint16_t opcode;        // Fixed forever. Append-only.
  std::uint16_t proc_version;  // Version that introduced this symbol: 3020, 12000, ...
  StreamVariant variant;
  Completion completion;
  Implementation implementation;
  bool implicit_sync;             // The manual documents an implicit synchronisation.
  bool remembered;                // The client asks once (client/interpose/call/remembered.h).
  bool emulated;                  // The emulated device executes it.
  std::uint16_t alias_opcode;     // The row with the same signature and meaning (for ptsz/ptds
                                  // copies, old names). The stub calls that row's implementation.
                                  // Own opcode if not an alias.
  std::uint8_t stream_parameter;  // Index of the stream the call is ordered in, or kNoParameter.
  std::uint8_t destroyed_parameter;  // Index of the handle that ends with this call, or
                                     // kNoParameter.
  std::uint16_t null_error;          // CUresult for a NULL where none is allowed (usually 1).
  const char* reason;                // The reason of a kRefused row. nullptr for others.
  std::span<const Parameter> parameters;
  std::uint64_t hash;  // Covers everything that the two ends must agree on.
};

// All rows, in opcode order. Immutable, safe from any thread.
std::span<const Row> rows() noexcept;
// SHA-256 of their opcodes and hashes, as protocol/control/rows_agreement.h makes it of any.
std::span<const std::uint8_t, 32> rows_digest() noexcept;
// nullptr when no row has that opcode / symbol.
const Row* find_row(std::uint16_t opcode) noexcept;
const Row* find_row(const char* symbol) noexcept;

}  // namespace gpurun::driver_abi
