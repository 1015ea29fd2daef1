// libgpurun-nvjitlink.so: replaces NVIDIA's nvJitLink where the device is emulated and runs PTX
// only. All answers come from NVIDIA's library, also errors and logs, except the linked "cubin".
// That is an image of the PTX that went in (driver_abi/linked_image.h). NVIDIA's library compiles
// LTO-IR to PTX for it. gpurun preloads this library, so its names come before NVIDIA's. That holds
// for programs that link with it, and for those that call dlsym(RTLD_DEFAULT, ...) first
// (cuda.bindings).
//
// An input with only machine code fails in nvJitLinkComplete, with the reason in the error log. PTX
// is linked even if NVIDIA's library is not on the machine. Errors in the PTX then show when the
// image is loaded. (A program that looks for nvJitLink finds us, and would no longer use the
// driver's linker instead.)
//
// A link belongs to one thread at a time, as NVIDIA's does.
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "base/file_io.h"
#include "base/log.h"
#include "client/nvjitlink/abi.h"
#include "client/nvjitlink/ptx_inputs.h"
#include "client/nvjitlink/real_library.h"
#include "client/nvjitlink/versioned_names.h"
#include "driver_abi/linked_image.h"

namespace gpurun::nvjitlink {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 31;  // Of a file that is linked.
// The emulated device's own (docs/man/gpurun-emulated.7.md), unless an option gives another.
constexpr std::uint32_t kUsualArchitecture = 121;

struct Input {
  InputType type;
  Bytes bytes;
  std::string name;
};

// The object behind a handle of ours.
struct Link {
  void* real = nullptr;  // Null: NVIDIA's library is not there.
  std::vector<std::string> options;
  std::vector<Input> inputs;
  Bytes image;          // After a successful end.
  std::string failure;  // Ours; NVIDIA's are in its log.
};

template <typename... Parameters>
int call(const void* caller, const char* name, Parameters... parameters) {
  auto* function = reinterpret_cast<int (*)(Parameters...)>(real_function(name, caller));
  return function == nullptr ? kInternal : function(parameters...);
}

bool has_real(const void* caller) { return real_function("nvJitLinkCreate", caller) != nullptr; }

bool has_option(const Link& link, std::string_view wanted) {
  for (const std::string& option : link.options) {
    if (option == wanted) return true;
  }
  return false;
}

// A link of NVIDIA's that is destroyed at the end of its scope.
struct RealLink {
  const void* caller;
  void* handle = nullptr;
  ~RealLink() {
    if (handle != nullptr) call(caller, "nvJitLinkDestroy", &handle);
  }
};

// Compiles LTO-IR to PTX, with the same options and -lto and -ptx.
int compile(Link* link, const void* caller, const std::vector<Compilable>& inputs,
            std::string* text) {
  if (link->real == nullptr) {
    link->failure =
        "LTO-IR needs NVIDIA's nvJitLink, which was not found; GPURUN_NVJITLINK names it";
    return kInternal;
  }
  std::vector<const char*> options;
  for (const std::string& option : link->options) options.push_back(option.c_str());
  for (const char* needed : {"-lto", "-ptx"}) {
    if (!has_option(*link, needed)) options.push_back(needed);
  }
  RealLink real{caller};
  int outcome = call(caller, "nvJitLinkCreate", &real.handle,
                     static_cast<std::uint32_t>(options.size()), options.data());
  for (const Compilable& input : inputs) {
    if (outcome != kSuccess) break;
    outcome =
        call(caller, "nvJitLinkAddData", real.handle, static_cast<int>(input.type),
             static_cast<const void*>(input.bytes.data()), input.bytes.size(), input.name.c_str());
  }
  if (outcome == kSuccess) outcome = call(caller, "nvJitLinkComplete", real.handle);
  std::size_t bytes = 0;
  if (outcome == kSuccess) {
    outcome = call(caller, "nvJitLinkGetLinkedPtxSize", real.handle, &bytes);
  }
  text->resize(bytes);
  if (outcome == kSuccess && bytes > 0) {
    outcome = call(caller, "nvJitLinkGetLinkedPtx", real.handle, text->data());
  }
  text->resize(text->find_last_not_of('\0') + 1);
  if (outcome != kSuccess) link->failure = "LTO-IR cannot be compiled to PTX by this nvJitLink";
  return outcome;
}

// Makes the image, once NVIDIA's linker has accepted the inputs.
int make_image(Link* link, const void* caller) {
  PtxInputs ptx(architecture_of(link->options, kUsualArchitecture));
  for (const Input& input : link->inputs) {
    const Status status =
        ptx.add(input.type, byte_view(input.bytes.data(), input.bytes.size()), input.name);
    if (status.ok()) continue;
    link->failure = status.message();
    return kFinalize;
  }
  std::vector<std::string> texts = ptx.texts();
  if (!ptx.compilable().empty()) {
    std::string text;
    const int outcome = compile(link, caller, ptx.compilable(), &text);
    if (outcome != kSuccess) return outcome;
    texts.insert(texts.begin(), std::move(text));
  }
  link->image = driver_abi::linked_image(texts);
  return kSuccess;
}

// NVIDIA's linker does not know an image that we made in an earlier link, but it knows its texts.
// `data` is what the caller has passed. nvJitLink looks beyond the end of a PTX text for its NUL
// (13.5: "bad input" without one), which programs may have left out of the length.
int add_to_real(Link* link, const Input& input, const void* data, const void* caller) {
  const auto give = [&](int type, const void* start, std::size_t bytes) {
    return call(caller, "nvJitLinkAddData", link->real, type, start, bytes, input.name.c_str());
  };
  const ByteView view(input.bytes.data(), input.bytes.size());
  if (!is_linked_image(view)) {
    return give(static_cast<int>(input.type), data, input.bytes.size());
  }
  PtxInputs texts(kUsualArchitecture);
  if (!texts.add(kCubin, view, input.name).ok()) return kUnrecognizedInput;
  for (const std::string& text : texts.texts()) {
    const int outcome = give(kPtx, text.c_str(), text.size() + 1);
    if (outcome != kSuccess) return outcome;
  }
  return kSuccess;
}

int add(Link* link, int type, const void* data, std::size_t bytes, const char* name,
        const void* caller) {
  if (link == nullptr || data == nullptr) return kNullInput;
  const auto* start = static_cast<const std::byte*>(data);
  Input input{static_cast<InputType>(type), Bytes(start, start + bytes),
              name == nullptr ? "input" : name};
  const int outcome =
      link->real == nullptr ? static_cast<int>(kSuccess) : add_to_real(link, input, data, caller);
  if (outcome == kSuccess) link->inputs.push_back(std::move(input));
  return outcome;
}

// nvJitLink's functions return in all cases, so this catches exhausted memory.
template <typename Function>
int answer(const Function& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return kInternal;
  }
}

Link* link_of(void* handle) { return static_cast<Link*>(handle); }

// Returns whether the log is ours and not NVIDIA's.
bool has_own_log(void* handle) {
  return !link_of(handle)->failure.empty() || link_of(handle)->real == nullptr;
}

}  // namespace
}  // namespace gpurun::nvjitlink

using namespace gpurun::nvjitlink;  // NOLINT: what follows is C.

#define GPURUN_CALLER __builtin_return_address(0)

#pragma GCC visibility push(default)
extern "C" {

int nvJitLinkCreate(void** handle, std::uint32_t count, const char** options) {
  const void* caller = GPURUN_CALLER;
  return answer([&] {
    if (handle == nullptr) return static_cast<int>(kNullInput);
    auto link = std::make_unique<Link>();
    int outcome = kSuccess;
    if (has_real(caller)) outcome = call(caller, "nvJitLinkCreate", &link->real, count, options);
    if (outcome != kSuccess) return outcome;
    for (std::uint32_t index = 0; index < count; ++index)
      link->options.emplace_back(options[index]);
    *handle = link.release();
    return outcome;
  });
}

int nvJitLinkDestroy(void** handle) {
  if (handle == nullptr || *handle == nullptr) return kInvalidInput;
  const std::unique_ptr<Link> link(link_of(*handle));
  *handle = nullptr;
  if (link->real == nullptr) return kSuccess;
  return call(GPURUN_CALLER, "nvJitLinkDestroy", &link->real);
}

int nvJitLinkAddData(void* handle, int type, const void* data, std::size_t bytes,
                     const char* name) {
  const void* caller = GPURUN_CALLER;
  return answer([&] { return add(link_of(handle), type, data, bytes, name, caller); });
}

int nvJitLinkAddFile(void* handle, int type, const char* path) {
  const void* caller = GPURUN_CALLER;
  return answer([&] {
    if (handle == nullptr || path == nullptr) return static_cast<int>(kNullInput);
    const auto content = gpurun::read_text_file(path, kFileBytesMax);
    if (!content.ok()) return static_cast<int>(kInvalidInput);
    // A text in memory ends with a NUL.
    const std::size_t bytes = content->size() + (type == kPtx ? 1 : 0);
    return add(link_of(handle), type, content->c_str(), bytes, path, caller);
  });
}

int nvJitLinkComplete(void* handle) {
  const void* caller = GPURUN_CALLER;
  return answer([&] {
    if (handle == nullptr) return static_cast<int>(kNullInput);
    Link* link = link_of(handle);
    if (link->real != nullptr) {
      const int outcome = call(caller, "nvJitLinkComplete", link->real);
      // A caller that asks for PTX does not ask for a cubin.
      if (outcome != kSuccess || has_option(*link, "-ptx")) return outcome;
    }
    const int ours = make_image(link, caller);
    if (ours != kSuccess) GPURUN_LOG(kWarning, "nvJitLink: %s", link->failure.c_str());
    return ours;
  });
}

int nvJitLinkGetLinkedCubinSize(void* handle, std::size_t* bytes) {
  if (handle == nullptr || bytes == nullptr) return kNullInput;
  if (link_of(handle)->image.empty()) {  // Not complete, or with -ptx.
    return call(GPURUN_CALLER, "nvJitLinkGetLinkedCubinSize", link_of(handle)->real, bytes);
  }
  *bytes = link_of(handle)->image.size();
  return kSuccess;
}

int nvJitLinkGetLinkedCubin(void* handle, void* cubin) {
  if (handle == nullptr || cubin == nullptr) return kNullInput;
  const gpurun::Bytes& image = link_of(handle)->image;
  if (image.empty())
    return call(GPURUN_CALLER, "nvJitLinkGetLinkedCubin", link_of(handle)->real, cubin);
  std::memcpy(cubin, image.data(), image.size());
  return kSuccess;
}

int nvJitLinkGetErrorLogSize(void* handle, std::size_t* bytes) {
  if (handle == nullptr || bytes == nullptr) return kNullInput;
  if (has_own_log(handle)) {
    *bytes = link_of(handle)->failure.size() + 1;
    return kSuccess;
  }
  return call(GPURUN_CALLER, "nvJitLinkGetErrorLogSize", link_of(handle)->real, bytes);
}

int nvJitLinkGetErrorLog(void* handle, char* log) {
  if (handle == nullptr || log == nullptr) return kNullInput;
  if (has_own_log(handle)) {
    std::strcpy(log, link_of(handle)->failure.c_str());
    return kSuccess;
  }
  return call(GPURUN_CALLER, "nvJitLinkGetErrorLog", link_of(handle)->real, log);
}

int nvJitLinkGetInfoLogSize(void* handle, std::size_t* bytes) {
  if (handle == nullptr || bytes == nullptr) return kNullInput;
  if (link_of(handle)->real == nullptr) {
    *bytes = 1;
    return kSuccess;
  }
  return call(GPURUN_CALLER, "nvJitLinkGetInfoLogSize", link_of(handle)->real, bytes);
}

int nvJitLinkGetInfoLog(void* handle, char* log) {
  if (handle == nullptr || log == nullptr) return kNullInput;
  if (link_of(handle)->real == nullptr) {
    *log = '\0';
    return kSuccess;
  }
  return call(GPURUN_CALLER, "nvJitLinkGetInfoLog", link_of(handle)->real, log);
}

int nvJitLinkGetLinkedPtxSize(void* handle, std::size_t* bytes) {
  if (handle == nullptr) return kNullInput;
  return call(GPURUN_CALLER, "nvJitLinkGetLinkedPtxSize", link_of(handle)->real, bytes);
}

int nvJitLinkGetLinkedPtx(void* handle, char* text) {
  if (handle == nullptr) return kNullInput;
  return call(GPURUN_CALLER, "nvJitLinkGetLinkedPtx", link_of(handle)->real, text);
}

int nvJitLinkGetLinkedLTOIRSize(void* handle, std::size_t* bytes) {
  if (handle == nullptr) return kNullInput;
  return call(GPURUN_CALLER, "nvJitLinkGetLinkedLTOIRSize", link_of(handle)->real, bytes);
}

int nvJitLinkGetLinkedLTOIR(void* handle, void* code) {
  if (handle == nullptr) return kNullInput;
  return call(GPURUN_CALLER, "nvJitLinkGetLinkedLTOIR", link_of(handle)->real, code);
}

int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  // Fails without NVIDIA's library: numba then makes PTX, and not LTO-IR.
  return call(GPURUN_CALLER, "nvJitLinkVersion", major, minor);
}

// The names that programs use if they were compiled with a release's header.
GPURUN_NVJITLINK_VERSIONED_NAMES

}  // extern "C"
#pragma GCC visibility pop
