// Fake nvJitLink: plays NVIDIA's library for stand_in_test.cc. It accepts any input except one that
// begins with "bad". It "links" to machine code of its own, and "compiles" LTO-IR to a PTX text
// that names its options.
#include <cstdint>
#include <cstring>
#include <string>

namespace {

struct Link {
  std::string options;
  std::string inputs;
  std::string log;
};

std::string ptx_of(const Link& link) { return "// compiled" + link.options + link.inputs; }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int live_links = 0;

int nvJitLinkCreate(void** handle, std::uint32_t count, const char** options) {
  if (count == 0) return 2;  // MISSING_ARCH
  auto* link = new Link;
  for (std::uint32_t i = 0; i < count; ++i) link->options += std::string(" ") + options[i];
  *handle = link;
  ++live_links;
  return 0;
}
int nvJitLinkDestroy(void** handle) {
  delete static_cast<Link*>(*handle);
  *handle = nullptr;
  --live_links;
  return 0;
}
const void* last_data = nullptr;

int nvJitLinkAddData(void* handle, int type, const void* data, std::size_t bytes, const char*) {
  last_data = data;
  auto* link = static_cast<Link*>(handle);
  const std::string text(static_cast<const char*>(data), bytes);
  if (text.compare(0, 3, "bad") == 0) {
    link->log = "NVIDIA's words";
    return 3;
  }
  link->inputs += " " + std::to_string(type) + ":" + text.c_str();
  return 0;
}
int nvJitLinkComplete(void*) { return 0; }
int nvJitLinkGetLinkedCubinSize(void*, std::size_t* bytes) {
  *bytes = 4;
  return 0;
}
int nvJitLinkGetLinkedCubin(void*, void* cubin) {
  std::memcpy(cubin, "SASS", 4);
  return 0;
}
int nvJitLinkGetLinkedPtxSize(void* handle, std::size_t* bytes) {
  *bytes = ptx_of(*static_cast<Link*>(handle)).size() + 1;
  return 0;
}
int nvJitLinkGetLinkedPtx(void* handle, char* text) {
  std::strcpy(text, ptx_of(*static_cast<Link*>(handle)).c_str());
  return 0;
}
int nvJitLinkGetErrorLogSize(void* handle, std::size_t* bytes) {
  *bytes = static_cast<Link*>(handle)->log.size() + 1;
  return 0;
}
int nvJitLinkGetErrorLog(void* handle, char* log) {
  std::strcpy(log, static_cast<Link*>(handle)->log.c_str());
  return 0;
}
int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  *major = 13;
  *minor = 99;
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
