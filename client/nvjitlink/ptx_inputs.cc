// PtxInputs: examines each form of input.
#include "client/nvjitlink/ptx_inputs.h"

#include <algorithm>
#include <cstdlib>

#include "driver_abi/cubin_with_ptx.h"
#include "driver_abi/fatbin.h"
#include "driver_abi/host_object.h"
#include "driver_abi/linked_image.h"
#include "driver_abi/little_endian.h"
#include "driver_abi/ptx_selection.h"

namespace gpurun::nvjitlink {
namespace {

using driver_abi::FatbinEntry;
using driver_abi::FatbinKind;

constexpr std::uint32_t kElfMagic = 0x464c457f;
constexpr std::uint16_t kElfOfCuda = 190;  // EM_CUDA, at 18.

Status refused(std::string_view name, const std::string& why) {
  return Status(Code::kRefused, std::string(name) + ": " + why +
                                    "; an emulated device runs PTX only (gpurun-emulated(7))");
}

bool begins_with(ByteView bytes, std::uint32_t magic) {
  return bytes.size() >= 20 && driver_abi::load_u32(bytes, 0) == magic;
}

// The type of an NVJITLINK_INPUT_ANY input. What is not recognised is LTO-IR.
InputType type_of(ByteView bytes) {
  if (begins_with(bytes, driver_abi::kFatbinContainerMagic)) return kFatbin;
  if (driver_abi::is_archive(bytes)) return kLibrary;
  if (begins_with(bytes, kElfMagic)) {
    return driver_abi::load_u16(bytes, 18) == kElfOfCuda ? kCubin : kObject;
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.find(".version") != std::string_view::npos ? kPtx : kLtoIr;
}

bool is_lto(const FatbinEntry& entry) {
  return entry.kind == FatbinKind::kNvvm || (entry.flags & driver_abi::kFatbinFlagLto) != 0;
}

}  // namespace

Status PtxInputs::add(InputType type, ByteView bytes, std::string_view name) {
  switch (type == kAny ? type_of(bytes) : type) {
    case kPtx: {
      std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      text.resize(text.find_last_not_of('\0') + 1);
      texts_.push_back(std::move(text));
      return {};
    }
    case kFatbin:
      return add_container(bytes, name);
    case kObject:
    case kLibrary:
      return add_object(bytes, name);
    case kLtoIr:
    case kIndex:
      compilable_.push_back({type, bytes, std::string(name)});
      return {};
    case kCubin:
      if (is_linked_image(bytes)) return add_container(bytes, name);
      // Damaged or not, NVIDIA's linker has its own word about it.
      if (const auto ptx = driver_abi::carried_ptx(bytes); ptx.ok()) {
        const ByteView image(ptx->data(), ptx->size());
        if (is_linked_image(image)) return add_container(image, name);
      }
      return refused(name, "machine code");
    case kAny:
      break;
  }
  return refused(name, "an unknown kind of input");
}

Status PtxInputs::add_container(ByteView container, std::string_view name) {
  const auto entries = driver_abi::read_fatbin(container);
  if (!entries.ok()) return refused(name, entries.status().message());
  const auto take = [this](const FatbinEntry& entry) -> Status {
    Result<std::string> text = driver_abi::ptx_text(entry);
    if (!text.ok()) return text.status();
    texts_.push_back(*std::move(text));
    return {};
  };
  if (is_linked_image(container)) {
    for (const FatbinEntry& entry : *entries) GPURUN_RETURN_IF_ERROR(take(entry));
    return {};
  }
  driver_abi::PtxSelection selection;
  selection.device_arch = architecture_;
  if (const auto chosen = driver_abi::select_ptx(*entries, selection)) {
    return take((*entries)[*chosen]);
  }
  if (std::any_of(entries->begin(), entries->end(), is_lto)) {
    compilable_.push_back({kFatbin, container, std::string(name)});
    return {};
  }
  if (entries->empty()) return {};
  return refused(name, "no PTX, only: " + driver_abi::describe_entries(*entries));
}

Status PtxInputs::add_object(ByteView bytes, std::string_view name) {
  const auto containers = driver_abi::containers_in_object(bytes);
  if (!containers.ok()) return refused(name, containers.status().message());
  for (const ByteView container : *containers) {
    GPURUN_RETURN_IF_ERROR(add_container(container, name));
  }
  return {};
}

std::uint32_t architecture_of(const std::vector<std::string>& options, std::uint32_t otherwise) {
  for (const std::string& option : options) {
    for (const std::string_view start : {"-arch=sm_", "-arch=compute_"}) {
      if (option.compare(0, start.size(), start) != 0) continue;
      const unsigned long number = std::strtoul(option.c_str() + start.size(), nullptr, 10);
      if (number > 0 && number < 10'000) return static_cast<std::uint32_t>(number);
    }
  }
  return otherwise;
}

bool is_linked_image(ByteView bytes) {
  if (!begins_with(bytes, driver_abi::kFatbinContainerMagic)) return false;
  const auto entries = driver_abi::read_fatbin(bytes);
  return entries.ok() && !entries->empty() &&
         std::all_of(entries->begin(), entries->end(), driver_abi::is_linked_entry);
}

}  // namespace gpurun::nvjitlink
