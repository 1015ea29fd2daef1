// The choice of the definition when texts are linked, and the making of unique names.
#include "emulated/module/link_table.h"

#include <algorithm>

#include "emulated/ptx/lexer.h"

namespace gpurun::emulated {

using ptx::Linkage;

ptx::Linkage function_linkage(const ptx::FunctionRange& range) {
  ptx::Lexer lexer(range.text, range.line);
  if (lexer.at_directive("visible")) return Linkage::kVisible;
  if (lexer.at_directive("weak")) return Linkage::kWeak;
  if (lexer.at_directive("extern")) return Linkage::kExtern;
  return Linkage::kNone;
}

Result<LinkTable> LinkTable::build(const std::vector<ptx::ModuleIndex>& indexes) {
  LinkTable table(indexes);
  table.local_.resize(indexes.size());
  for (std::uint32_t text = 0; text < indexes.size(); ++text) {
    for (std::uint32_t i = 0; i < indexes[text].functions.size(); ++i) {
      GPURUN_RETURN_IF_ERROR(table.add_function(text, i));
    }
    for (std::uint32_t i = 0; i < indexes[text].variables.size(); ++i) {
      GPURUN_RETURN_IF_ERROR(table.add_variable(text, i));
    }
  }
  return table;
}

Status LinkTable::add_function(std::uint32_t text, std::uint32_t index) {
  const ptx::FunctionRange& range = (*indexes_)[text].functions[index];
  if (range.declaration) return Status();
  const Definition definition{Definition::Kind::kFunction, text, index};
  const Linkage linkage = function_linkage(range);
  // The runtime finds kernels by name whatever their linkage.
  if (linkage == Linkage::kVisible || linkage == Linkage::kWeak || range.entry) {
    return add_shared_name(definition, linkage == Linkage::kWeak ? linkage : Linkage::kVisible,
                           range.name);
  }
  local_[text].emplace(range.name, definition);
  return Status();
}

Status LinkTable::add_variable(std::uint32_t text, std::uint32_t index) {
  const ptx::Variable& variable = (*indexes_)[text].variables[index];
  Definition definition{Definition::Kind::kVariable, text, index};
  if (variable.linkage == Linkage::kExtern) {
    if (variable.space != ptx::Space::kShared || !variable.unsized()) return Status();
    definition.kind = Definition::Kind::kDynamicShared;
    local_[text].emplace(variable.name, definition);
    return Status();
  }
  if (variable.linkage != Linkage::kNone) {
    return add_shared_name(definition, variable.linkage, variable.name);
  }
  if (local_[text].emplace(variable.name, definition).second) return Status();
  return Status(Code::kInvalidArgument, std::string(variable.name) + " is defined twice");
}

Status LinkTable::add_shared_name(const Definition& definition, Linkage linkage,
                                  std::string_view name) {
  const auto [found, added] = shared_.emplace(name, definition);
  Linkage& known = shared_linkage_[name];
  if (added) {
    known = linkage;
    return Status();
  }
  const bool known_yields = known == Linkage::kWeak || known == Linkage::kCommon;
  const bool new_yields = linkage == Linkage::kWeak || linkage == Linkage::kCommon;
  if (!known_yields && !new_yields) {
    return Status(Code::kInvalidArgument, std::string(name) + " is defined twice");
  }
  // The strong definition counts. Among .common ones the largest counts.
  const bool larger = known == Linkage::kCommon && linkage == Linkage::kCommon &&
                      variable(definition).byte_size() > variable(found->second).byte_size();
  if ((known_yields && !new_yields) || larger) {
    found->second = definition;
    known = linkage;
  }
  return Status();
}

Definition LinkTable::find(std::uint32_t text, std::string_view name) const {
  for (int depth = 0; depth < 8; ++depth) {
    const auto local = local_[text].find(name);
    if (local != local_[text].end()) return local->second;
    const Definition shared = find_shared_name(name);
    if (shared.kind != Definition::Kind::kNone) return shared;
    const auto& aliases = (*indexes_)[text].aliases;
    const auto alias = aliases.find(name);
    if (alias == aliases.end()) return {};
    name = alias->second;
  }
  return {};
}

Definition LinkTable::find_shared_name(std::string_view name) const {
  const auto found = shared_.find(name);
  return found == shared_.end() ? Definition{} : found->second;
}

std::string LinkTable::link_name(const Definition& definition) const {
  const std::string_view own = name(definition);
  const auto shared = shared_.find(own);
  std::string text = "m.";
  if (shared == shared_.end() || !(shared->second == definition)) {
    text += std::to_string(definition.text) + ".";
  }
  return text.append(own);
}

}  // namespace gpurun::emulated
