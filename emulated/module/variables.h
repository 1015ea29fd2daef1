// Variables: the addresses and initial values of the .global and .const variables of one module.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "emulated/module/link_table.h"
#include "emulated/module/module.h"

namespace gpurun::emulated {

// Immutable after place(). Any thread.
class Variables {
 public:
  explicit Variables(GlobalMemory& memory) : memory_(memory) {}
  // Releases what was allocated.
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  // Address of a function's descriptor, for initialisers that hold it.
  using FunctionAddress = std::function<std::uint64_t(const Definition&)>;

  // Allocates and initialises every variable that `table` has kept. Called once.
  Status place(const std::vector<ptx::ModuleIndex>& indexes, const LinkTable& table,
               const FunctionAddress& function_address);

  // 0 for definitions without an address: .shared variables, and definitions that another text
  // replaced.
  std::uint64_t address(const Definition& definition) const;
  std::uint32_t const_bytes() const { return const_bytes_; }

 private:
  Status allocate(const std::vector<ptx::ModuleIndex>& indexes, const LinkTable& table);
  Status initialize(const Definition& definition, const LinkTable& table,
                    const FunctionAddress& function_address);
  Result<std::uint64_t> symbol_value(const Definition& variable, std::string_view symbol,
                                     const LinkTable& table,
                                     const FunctionAddress& function_address) const;
  Status take(std::uint64_t bytes, std::uint64_t alignment, bool managed, std::uint64_t* address);

  GlobalMemory& memory_;
  std::vector<std::uint64_t> blocks_;
  std::vector<std::vector<std::uint64_t>> addresses_;  // By text and index.
  std::uint32_t const_bytes_ = 0;
};

}  // namespace gpurun::emulated
