// Wrong calls: the words of wrong_calls.txt as C++, and a row of that table.
//
// wrong_calls.py makes one member function from each row. Its arguments are the members, functions
// and numbers of this file. The probe makes each call in a process of its own, and check_calls.h
// makes many in one.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "driver.h"

namespace gpurun::probe {

// 4 KiB of zeros for outputs that are not read, as any pointer.
struct Room {
  template <typename T>
  operator T*() {
    return reinterpret_cast<T*>(bytes);
  }
  alignas(64) char bytes[4096] = {};
};
// Bad handles, as any pointer. Zeros point to readable zeros: a driver that reads through one finds
// zeros and does not crash. A Hole points to unmapped memory.
struct Zeros {
  template <typename T>
  operator T*() const {
    return zeros_as<T*>();
  }
};
struct Hole {
  template <typename T>
  operator T*() const {
    return hole_as<T*>();
  }
};
// A number that is not a value of the parameter's enumeration.
class Number {
 public:
  explicit constexpr Number(unsigned value) : value_(value) {}
  template <typename Enum>
  requires std::is_enum_v<Enum>
  operator Enum() const { return number_as<Enum>(value_); }

 private:
  unsigned value_;
};

struct WrongStage : Stage {
  // As Stage(). Also throws CallFailed when a fault at kLost goes unnoticed.
  WrongStage(const Driver& opened, Level level);

  // Makes the call of row `Index`. Throws CallFailed when a call before it fails.
  template <int Index>
  CUresult make();

  // --- Words: values.
  static constexpr std::nullptr_t null = nullptr;
  static constexpr Zeros zeros = {};
  static constexpr Hole hole = {};
  static Number number(unsigned value) { return Number(value); }
  static constexpr std::size_t TiB = std::size_t{1} << 40;
  static constexpr std::size_t all = ~std::size_t{0};     // Sizes and pitches beyond every bound.
  static constexpr CUdeviceptr unknown = 0x1234500;       // Never allocated.
  static constexpr CUdeviceptr nowhere = 0x700000000000;  // Never reserved.
  static constexpr std::size_t granule = 2 << 20;
  Room out, out2, out3, zeroed;
  alignas(4096) char host[16384] = {};  // Pageable.
  static constexpr char not_code[] = "this is no code at all";
  static const char* const kernels;      // PTX of kernels.h.
  static const char* const bad_ptx;      // An instruction that does not exist.
  static const char* const future_ptx;   // ".version 99.0".
  static const char* const broken_ptx;   // A register without a declaration.
  static const char* const no_such_sm;   // ".target sm_999".
  static unsigned char foreign_elf[64];  // Only an ELF header of machine code.
  CUgraphExec graph_exec = nullptr;      // At kLost: made before the fault.
  // For functions of which only the address matters.
  static void host_function(void*) {}
  static void callback(CUstream, CUresult, void*) {}

  CUjit_option* options(CUjit_option one) { return &(option_ = one); }

  // --- Words: what must come before a call. These return a valid object...
  CUgraph graph();
  CUgraphNode node(CUgraph of);  // An empty one.
  CUgraphExec exec();            // Of a graph with an empty node.
  CUlibrary library();
  CUkernel kernel();                       // "with_five" of a library.
  CUmemoryPool pool();                     // On the device.
  void* pinned();                          // 4096 bytes.
  char* registered();                      // `host`, 4096 bytes.
  CUdeviceptr reserved();                  // A granule of addresses.
  CUmemGenericAllocationHandle created();  // A granule.
  CUdeviceptr mapped();                    // A granule, with read and write access.
  CUcontext other_context();               // A second one, not current.
  CUstream other_stream();                 // Of that.
  CUevent other_event();
  CUmodule other_module();
  CUlinkState link();            // With the text `kernels`.
  CUlinkState completed();       // As link(), with its image made.
  CUevent event_without_time();  // Recorded.
  CUdeviceptr async_memory();    // 4096 bytes of cuMemAllocAsync.
  void** five();                 // Parameters for with_five, in order.
  void** short_extra();
  CUstream capturing();               // `stream`, relaxed, with an empty launch behind it.
  CUstream capturing(unsigned mode);  // CUstreamCaptureMode.
  CUstream invalidated();             // A capture that an illegal call has ended.
  CUevent captured_event();           // Recorded in a capturing stream.
  // ...and these return the remains of an ended object.
  CUstream destroyed(CUstream ended);
  CUevent destroyed(CUevent ended);
  CUgraph destroyed(CUgraph ended);
  CUgraphExec destroyed(CUgraphExec ended);
  CUcontext destroyed(CUcontext ended);
  CUmemoryPool destroyed(CUmemoryPool ended);
  CUlinkState destroyed(CUlinkState ended);
  CUmodule unloaded(CUmodule ended);
  CUlibrary unloaded(CUlibrary ended);
  CUdeviceptr freed(CUdeviceptr ended);
  CUdeviceptr freed_async(CUdeviceptr ended);
  void* freed_host(void* ended);
  char* unregistered(char* ended);
  CUmemGenericAllocationHandle released(CUmemGenericAllocationHandle ended);
  CUdeviceptr unmapped(CUdeviceptr ended);
  // Ends the second context, if there is one, and waits for its work, which may write here.
  void end_other_context();
  // No context is current from here on.
  template <typename T>
  T without_context(T value) {
    must(CU(driver, cuCtxSetCurrent)(nullptr), "cuCtxSetCurrent");
    return value;
  }

  // --- Structures: right, except the members in braces. In the table: `copy_2d{.srcPitch = 8}`.
  template <typename Change>
  CUDA_MEMCPY2D* copy_2d(Change&& change) {
    change(copy_2d_ = right_copy_2d());
    return &copy_2d_;
  }
  template <typename Change>
  CUDA_MEMCPY3D* copy_3d(Change&& change) {
    change(copy_3d_ = right_copy_3d());
    return &copy_3d_;
  }
  template <typename Change>
  CUmemAllocationProp* properties(Change&& change) {
    change(properties_ = right_properties());
    return &properties_;
  }
  template <typename Change>
  CUmemPoolProps* pool_properties(Change&& change) {
    change(pool_properties_ = right_pool_properties());
    return &pool_properties_;
  }
  template <typename Change>
  CUmemAccessDesc* access(Change&& change) {
    change(access_ = right_access());
    return &access_;
  }
  template <typename Change>
  CUlaunchConfig* config(Change&& change) {
    change(config_ = right_config());
    return &config_;
  }
  template <typename Change>
  CUDA_KERNEL_NODE_PARAMS* kernel_node(Change&& change) {
    change(kernel_node_ = right_kernel_node());
    return &kernel_node_;
  }
  template <typename Change>
  CUDA_MEMSET_NODE_PARAMS* memset_node(Change&& change) {
    change(memset_node_ = right_memset_node());
    return &memset_node_;
  }

 private:
  CUjit_option option_ = CU_JIT_MAX_REGISTERS;

  CUDA_MEMCPY2D right_copy_2d() const;  // 16 by 16 bytes on the device.
  CUDA_MEMCPY3D right_copy_3d() const;  // 16 by 4 by 4 bytes on the device.
  CUmemAllocationProp right_properties() const;
  CUmemPoolProps right_pool_properties() const;
  CUmemAccessDesc right_access() const;
  CUlaunchConfig right_config() const;                // One thread, in `stream`.
  CUDA_KERNEL_NODE_PARAMS right_kernel_node() const;  // `empty`, one thread.
  CUDA_MEMSET_NODE_PARAMS right_memset_node() const;  // 16 bytes.

  CUDA_MEMCPY2D copy_2d_;
  CUDA_MEMCPY3D copy_3d_;
  CUmemAllocationProp properties_;
  CUmemPoolProps pool_properties_;
  CUmemAccessDesc access_;
  CUlaunchConfig config_;
  CUDA_KERNEL_NODE_PARAMS kernel_node_;
  CUDA_MEMSET_NODE_PARAMS memset_node_;
  CUcontext second_ = nullptr;
};

inline constexpr int kOpen = -1;

struct WrongCall {
  const char* function;
  const char* how;
  int expected;        // CUresult, or kOpen: the source does not say, and any code is right.
  const char* source;  // Of `expected`, as in the table.
  Level level;         // What must exist before the call.
  bool prepared;       // A call before it changes the stage.
  // Why CUDA_ERROR_NOT_SUPPORTED is right here, too. "" where it is wrong.
  const char* lacking;
  CUresult (WrongStage::*make)();
};

// The table, in its order.
std::span<const WrongCall> wrong_calls();

}  // namespace gpurun::probe
