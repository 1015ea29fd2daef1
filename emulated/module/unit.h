// Unit: one kernel, or one function that is called through a pointer, with everything that it calls
// directly. It is parsed, resolved and laid out, ready to be translated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "emulated/codegen/function_source.h"
#include "emulated/module/link_table.h"

namespace gpurun::emulated {

// The services of a module to its units. Any thread.
class UnitContext {
 public:
  virtual ~UnitContext() = default;
  virtual const LinkTable& table() const = 0;
  virtual std::size_t text_count() const = 0;
  virtual std::uint64_t variable_address(const Definition& definition) const = 0;
  virtual std::uint64_t descriptor_address(const Definition& function) const = 0;
  // The module-scope .shared variables that functions of the module use, in a fixed order.
  // Functions that are called through pointers find them at the same place in every kernel.
  virtual Result<std::vector<Definition>> shared_of_functions() = 0;
};

// Built by one thread, constant afterwards.
class Unit {
 public:
  // kRefused: an instruction is not in the translator's table, or a function is missing. The
  // message names function, line and instruction. kInvalidArgument: the text is malformed.
  static Result<std::unique_ptr<Unit>> build(UnitContext& context, const Definition& root);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const KernelSource& source() const { return source_; }
  const ptx::Function& root() const { return functions_.front()->parsed; }
  // Bytes of static shared memory, with the padding that dynamic shared memory's alignment needs.
  std::uint32_t shared_bytes() const { return shared_end_; }
  bool uses_dynamic_shared() const { return dynamic_shared_; }
  std::uint32_t local_bytes() const { return local_bytes_; }
  // Whether it calls through pointers.
  bool calls_pointers() const { return calls_pointers_; }
  bool recursive() const { return recursive_ || calls_pointers_; }
  // Variables and descriptors that the code refers to.
  const std::vector<LinkSymbol>& symbols() const { return symbols_; }
  // Everything that the translation depends on, as a key for the object cache. It is the same in
  // every process.
  std::string cache_text() const;

 private:
  struct Member {
    Definition definition;
    ptx::Function parsed;
    std::vector<std::size_t> callees;
  };
  class Scope;

  Unit(UnitContext& context, const Definition& root);
  Status add_members();
  Status add_member(std::size_t index);
  Status check(Member& member, const ptx::Instruction& instruction);
  Status check_call(Member& member, const ptx::Instruction& instruction);
  void add_reference(std::uint32_t text, std::string_view name);
  std::size_t member_index(const Definition& definition);
  Status lay_out_shared();
  void place_shared(const Definition& definition);
  std::uint32_t place(const ptx::Variable& variable);
  void find_recursion();
  void make_source();
  Symbol find(std::uint32_t text, std::string_view name) const;
  std::string link_name(const Definition& function) const;
  Status refusal(const Member& member, const ptx::Instruction& instruction,
                 const std::string& why) const;

  UnitContext& context_;
  std::vector<std::unique_ptr<Member>> functions_;  // The root first.
  std::unordered_map<std::uint64_t, std::size_t> function_index_;
  std::vector<std::unique_ptr<Scope>> scopes_;  // By text.
  // Names that are referred to, in order of appearance.
  std::vector<std::pair<std::uint32_t, std::string>> references_;
  std::unordered_map<std::string, std::size_t> reference_index_;
  std::unordered_map<std::uint64_t, std::uint32_t> shared_offsets_;  // By text and index.
  std::vector<LinkSymbol> symbols_;
  KernelSource source_;
  std::uint64_t shared_wide_ = 0;
  std::uint32_t shared_end_ = 0;
  std::uint32_t dynamic_offset_ = 0;
  std::uint32_t local_bytes_ = 0;
  bool dynamic_shared_ = false;
  bool calls_pointers_ = false;
  bool recursive_ = false;
};

// Adds the module-scope .shared variables that one function's body uses to `out`, each once.
Status collect_shared(const LinkTable& table, const Definition& function,
                      std::vector<Definition>& out);

}  // namespace gpurun::emulated
