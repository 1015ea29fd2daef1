// Layout and initial values of module variables (PTX ISA, section 5.4). All variables except
// managed ones lie in one allocation.
#include "emulated/module/variables.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kBlockAlignment = 256;

bool has_memory(const ptx::Variable& variable) {
  return (variable.space == ptx::Space::kGlobal || variable.space == ptx::Space::kConst) &&
         variable.linkage != ptx::Linkage::kExtern;
}

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// An initialiser's number in the variable's own format.
std::uint64_t converted(const ptx::Initializer& initializer, const ptx::Type& type) {
  using Kind = ptx::Initializer::Kind;
  if (!type.is_float() || type.is_packed() || type.bits < 32) return initializer.bits;
  double value = 0;
  if (initializer.kind == Kind::kFloat32) {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(initializer.bits));
    if (type.bits == 32) return initializer.bits;
  } else if (initializer.kind == Kind::kFloat64) {
    value = std::bit_cast<double>(initializer.bits);
  } else {
    value = static_cast<double>(static_cast<std::int64_t>(initializer.bits));
  }
  if (type.bits == 32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<std::uint64_t>(value);
}

}  // namespace

Variables::~Variables() {
  for (std::uint64_t block : blocks_) memory_.release(block);
}

Status Variables::take(std::uint64_t bytes, std::uint64_t alignment, bool managed,
                       std::uint64_t* address) {
  auto block = memory_.allocate(bytes, alignment, managed);
  if (!block.ok()) return block.status();
  blocks_.push_back(*block);
  if (!memory_.has_value(*block)) std::memset(reinterpret_cast<void*>(*block), 0, bytes);
  *address = *block;
  return Status();
}

Status Variables::place(const std::vector<ptx::ModuleIndex>& indexes, const LinkTable& table,
                        const FunctionAddress& function_address) {
  GPURUN_RETURN_IF_ERROR(allocate(indexes, table));
  for (std::uint32_t text = 0; text < indexes.size(); ++text) {
    for (std::uint32_t i = 0; i < indexes[text].variables.size(); ++i) {
      const Definition definition{Definition::Kind::kVariable, text, i};
      if (address(definition) == 0 || memory_.has_value(address(definition))) continue;
      GPURUN_RETURN_IF_ERROR(initialize(definition, table, function_address));
    }
  }
  return Status();
}

Status Variables::allocate(const std::vector<ptx::ModuleIndex>& indexes, const LinkTable& table) {
  std::uint64_t end = 0;
  std::uint64_t alignment = kBlockAlignment;
  std::uint64_t const_end = 0;
  for (std::uint32_t text = 0; text < indexes.size(); ++text) {
    addresses_.emplace_back(indexes[text].variables.size(), 0);
    for (std::uint32_t i = 0; i < indexes[text].variables.size(); ++i) {
      const ptx::Variable& variable = indexes[text].variables[i];
      if (!has_memory(variable)) continue;
      if (!(table.find(text, variable.name) == Definition{Definition::Kind::kVariable, text, i})) {
        continue;
      }
      // An empty variable also has an address of its own.
      const std::uint64_t bytes = std::max<std::uint64_t>(1, variable.byte_size());
      const std::uint64_t each = variable.byte_alignment();
      if (variable.space == ptx::Space::kConst) const_end = align_up(const_end, each) + bytes;
      if (variable.managed) {
        GPURUN_RETURN_IF_ERROR(take(bytes, each, true, &addresses_[text][i]));
        continue;
      }
      alignment = std::max(alignment, each);
      end = align_up(end, each);
      addresses_[text][i] = end + 1;  // An offset at first. 0 stays "no address".
      end += bytes;
      if (end > ptx::kVariableBytesMax) {
        return Status(Code::kInvalidArgument, "the module's variables are too large");
      }
    }
  }
  const_bytes_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(const_end, 0xffffffffu));
  if (end == 0) return Status();
  std::uint64_t base = 0;
  GPURUN_RETURN_IF_ERROR(take(end, alignment, false, &base));
  for (std::uint32_t text = 0; text < indexes.size(); ++text) {
    for (std::uint32_t i = 0; i < indexes[text].variables.size(); ++i) {
      std::uint64_t& address = addresses_[text][i];
      if (address != 0 && !indexes[text].variables[i].managed) address += base - 1;
    }
  }
  return Status();
}

Result<std::uint64_t> Variables::symbol_value(const Definition& variable, std::string_view symbol,
                                              const LinkTable& table,
                                              const FunctionAddress& function_address) const {
  const Definition target = table.find(variable.text, symbol);
  if (target.kind == Definition::Kind::kFunction) return function_address(target);
  if (target.kind == Definition::Kind::kVariable && address(target) != 0) return address(target);
  return Status(Code::kInvalidArgument, "the initialiser of " + std::string(table.name(variable)) +
                                            " names " + std::string(symbol) +
                                            ", which has no address");
}

Status Variables::initialize(const Definition& definition, const LinkTable& table,
                             const FunctionAddress& function_address) {
  const ptx::Variable& variable = table.variable(definition);
  auto* bytes = reinterpret_cast<std::uint8_t*>(address(definition));
  const std::uint64_t each = variable.type.bytes();
  const std::uint64_t size = variable.byte_size();
  for (const ptx::Initializer& initializer : variable.initializers) {
    std::uint64_t value = 0;
    if (initializer.kind == ptx::Initializer::Kind::kSymbol) {
      auto target = symbol_value(definition, initializer.symbol, table, function_address);
      if (!target.ok()) return target.status();
      value = *target + initializer.bits;
      if (initializer.mask != 0) {
        value = (value & initializer.mask) >> std::countr_zero(initializer.mask);
      }
    } else {
      value = converted(initializer, variable.type);
    }
    const std::uint64_t offset = initializer.element * each;
    if (offset > size || size - offset < each) {
      return Status(Code::kInvalidArgument,
                    std::string(variable.name) + " has an initialiser beyond its end");
    }
    std::memcpy(bytes + offset, &value, std::min<std::uint64_t>(each, sizeof value));
  }
  return Status();
}

std::uint64_t Variables::address(const Definition& definition) const {
  if (definition.kind != Definition::Kind::kVariable) return 0;
  return addresses_[definition.text][definition.index];
}

}  // namespace gpurun::emulated
