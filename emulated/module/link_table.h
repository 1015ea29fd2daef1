// LinkTable: the meaning of names across the texts of one module. It follows PTX's linking
// directives (PTX ISA, section 11.6). All texts share .visible and .weak names, and kernels. Other
// names belong to their text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "emulated/ptx/index.h"

namespace gpurun::emulated {

// One definition: its text, and its place in that text's index.
struct Definition {
  enum class Kind : std::uint8_t {
    kNone,
    kFunction,  // In ModuleIndex::functions, with a body.
    kVariable,  // In ModuleIndex::variables: .global, .const or .shared.
    // An unsized .extern .shared array. All of them start at one place.
    kDynamicShared,
  };
  Kind kind = Kind::kNone;
  std::uint32_t text = 0;
  std::uint32_t index = 0;

  bool operator==(const Definition&) const = default;
};

// Immutable once built: any thread.
class LinkTable {
 public:
  // `indexes` is borrowed. kInvalidArgument when a name is defined twice.
  static Result<LinkTable> build(const std::vector<ptx::ModuleIndex>& indexes);

  // The meaning of `name` in text number `text`. Kind kNone when this module does not define the
  // name.
  Definition find(std::uint32_t text, std::string_view name) const;
  // As find(), for a name outside of any text: finds only names that all texts share.
  Definition find_shared_name(std::string_view name) const;

  const ptx::FunctionRange& function(const Definition& definition) const {
    return (*indexes_)[definition.text].functions[definition.index];
  }
  const ptx::Variable& variable(const Definition& definition) const {
    return (*indexes_)[definition.text].variables[definition.index];
  }
  std::string_view name(const Definition& definition) const {
    return definition.kind == Definition::Kind::kFunction ? function(definition).name
                                                          : variable(definition).name;
  }
  // A name for linking, unique in the module and the same in every process: "m.name". A name that
  // belongs to one text has the text's number in it.
  std::string link_name(const Definition& definition) const;

 private:
  using Names = std::unordered_map<std::string_view, Definition>;

  explicit LinkTable(const std::vector<ptx::ModuleIndex>& indexes) : indexes_(&indexes) {}
  Status add_function(std::uint32_t text, std::uint32_t index);
  Status add_variable(std::uint32_t text, std::uint32_t index);
  Status add_shared_name(const Definition& definition, ptx::Linkage linkage, std::string_view name);

  const std::vector<ptx::ModuleIndex>* indexes_;
  std::vector<Names> local_;
  Names shared_;
  std::unordered_map<std::string_view, ptx::Linkage> shared_linkage_;
};

// The linking directive in front of a function.
ptx::Linkage function_linkage(const ptx::FunctionRange& range);

}  // namespace gpurun::emulated
