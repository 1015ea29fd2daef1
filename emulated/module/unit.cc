// Building of a unit: checks every instruction of a kernel and its callees, resolves every name,
// and lays out shared memory.
#include "emulated/module/unit.h"

#include <algorithm>

#include "emulated/codegen/runtime_calls.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using ptx::Operand;

constexpr std::size_t kFunctionsMax = 1u << 16;
// More than any device has (227 KiB), so that the attributes of such a kernel can still be read.
constexpr std::uint64_t kSharedBytesMax = 1u << 30;
constexpr std::uint32_t kDynamicSharedAlignment = 16;

std::uint64_t key_of(const Definition& definition) {
  return std::uint64_t{definition.text} << 32 | definition.index;
}

const char* why_unknown(const ptx::Instruction& instruction) {
  static constexpr std::string_view kTextures[] = {"tex",  "tld4",  "txq", "suld",
                                                   "sust", "sured", "suq", "istypep"};
  for (std::string_view opcode : kTextures) {
    if (instruction.opcode == opcode) {
      return "textures and surfaces are not read or written in this way here";
    }
  }
  static constexpr std::string_view kNever[] = {"wgmma", "tcgen05", "setmaxnreg"};
  for (std::string_view opcode : kNever) {
    if (instruction.opcode == opcode) {
      return "instructions of one architecture only (sm_90a, sm_100a) are not supported";
    }
  }
  return "unknown instruction";
}

template <class Visit>
void for_each_symbol(const Operand& operand, const Visit& visit) {
  if (operand.kind == Operand::Kind::kSymbol) visit(operand.name);
  for (const Operand& part : operand.parts) for_each_symbol(part, visit);
}

template <class Visit>
void for_each_symbol(const ptx::Instruction& instruction, const Visit& visit) {
  const bool call = instruction.opcode == "call";
  for (std::size_t i = call ? 1 : 0; i < instruction.operands.size(); ++i) {
    for_each_symbol(instruction.operands[i], visit);
  }
  for (const Operand& operand : instruction.arguments) for_each_symbol(operand, visit);
}

}  // namespace

// The names of one text, as this unit sees them.
class Unit::Scope : public LinkScope {
 public:
  Scope(const Unit& unit, std::uint32_t text) : unit_(unit), text_(text) {}
  Symbol find(std::string_view name) const override { return unit_.find(text_, name); }

 private:
  const Unit& unit_;
  std::uint32_t text_;
};

Unit::Unit(UnitContext& context, const Definition& root) : context_(context) {
  member_index(root);
  for (std::uint32_t i = 0; i < context.text_count(); ++i) {
    scopes_.push_back(std::make_unique<Scope>(*this, i));
  }
}

Unit::~Unit() = default;

Result<std::unique_ptr<Unit>> Unit::build(UnitContext& context, const Definition& root) {
  std::unique_ptr<Unit> unit(new Unit(context, root));
  GPURUN_RETURN_IF_ERROR(unit->add_members());
  GPURUN_RETURN_IF_ERROR(unit->lay_out_shared());
  unit->find_recursion();
  unit->make_source();
  return unit;
}

Status Unit::refusal(const Member& member, const ptx::Instruction& instruction,
                     const std::string& why) const {
  const auto& range = context_.table().function(functions_.front()->definition);
  std::string message = (range.entry ? "kernel " : "function ") + std::string(range.name);
  if (&member != functions_.front().get()) {
    message.append(" (in function ").append(member.parsed.name).append(")");
  }
  return Status(Code::kRefused, message + ", PTX line " + std::to_string(instruction.line) + ": " +
                                    instruction.full_name() + ": " + why);
}

Status Unit::add_members() {
  for (std::size_t i = 0; i < functions_.size(); ++i) {  // Grows while it is walked.
    GPURUN_RETURN_IF_ERROR(add_member(i));
  }
  return Status();
}

Status Unit::add_member(std::size_t index) {
  Member& member = *functions_[index];
  auto parsed = ptx::parse_function(context_.table().function(member.definition));
  if (!parsed.ok()) {
    const Code code = parsed.status().code();
    return Status(code, "function " + std::string(context_.table().name(member.definition)) + ": " +
                            parsed.status().message());
  }
  member.parsed = std::move(*parsed);
  for (const ptx::Variable& variable : member.parsed.variables) {
    if (variable.space == ptx::Space::kLocal) {
      local_bytes_ += static_cast<std::uint32_t>(
          std::min<std::uint64_t>(variable.byte_size(), 0x7fffffffu - local_bytes_));
    }
  }
  for (const ptx::Statement& statement : member.parsed.body) {
    if (statement.label != ptx::kNoIndex) continue;
    ++source_.instruction_count;
    GPURUN_RETURN_IF_ERROR(check(member, statement.instruction));
  }
  return Status();
}

Status Unit::check(Member& member, const ptx::Instruction& instruction) {
  if (find_variant(canonical_name(instruction)) == nullptr) {
    return refusal(member, instruction, why_unknown(instruction));
  }
  if (instruction.opcode == "call") GPURUN_RETURN_IF_ERROR(check_call(member, instruction));
  for_each_symbol(instruction,
                  [&](std::string_view name) { add_reference(member.definition.text, name); });
  return Status();
}

Status Unit::check_call(Member& member, const ptx::Instruction& instruction) {
  const Operand& callee = instruction.operands.front();
  if (callee.kind != Operand::Kind::kSymbol) {
    calls_pointers_ = true;
    return Status();
  }
  const Definition definition = context_.table().find(member.definition.text, callee.name);
  if (definition.kind != Definition::Kind::kFunction) {
    if (is_runtime_call(callee.name)) return Status();
    if (is_device_runtime(callee.name)) {
      return refusal(member, instruction,
                     "the code is linked without CUDA's device runtime (libcudadevrt), or with one "
                     "that lacks " +
                         std::string(callee.name));
    }
    return refusal(member, instruction, "there is no function " + std::string(callee.name));
  }
  const std::size_t index = member_index(definition);
  if (functions_.size() > kFunctionsMax) return refusal(member, instruction, "too many functions");
  if (std::find(member.callees.begin(), member.callees.end(), index) == member.callees.end()) {
    member.callees.push_back(index);
  }
  return Status();
}

std::size_t Unit::member_index(const Definition& definition) {
  const auto [found, added] = function_index_.emplace(key_of(definition), functions_.size());
  if (added) {
    functions_.push_back(std::make_unique<Member>());
    functions_.back()->definition = definition;
  }
  return found->second;
}

void Unit::add_reference(std::uint32_t text, std::string_view name) {
  std::string key = std::to_string(text) + "." + std::string(name);
  if (reference_index_.emplace(std::move(key), references_.size()).second) {
    references_.emplace_back(text, std::string(name));
  }
}

// Shared memory -----------------------------------------------------------------------------------

std::uint32_t Unit::place(const ptx::Variable& variable) {
  const std::uint64_t alignment = std::max<std::uint64_t>(1, variable.byte_alignment());
  shared_wide_ = (shared_wide_ + alignment - 1) / alignment * alignment;
  const std::uint64_t offset = shared_wide_;
  shared_wide_ = std::min(shared_wide_ + variable.byte_size(), 2 * kSharedBytesMax);
  return static_cast<std::uint32_t>(offset);
}

void Unit::place_shared(const Definition& definition) {
  if (shared_offsets_.contains(key_of(definition))) return;
  shared_offsets_[key_of(definition)] = place(context_.table().variable(definition));
}

Status Unit::lay_out_shared() {
  const LinkTable& table = context_.table();
  const bool root_is_kernel = functions_.front()->parsed.entry;
  if (calls_pointers_ || !root_is_kernel) {
    auto fixed = context_.shared_of_functions();
    if (!fixed.ok()) return fixed.status();
    for (const Definition& definition : *fixed) place_shared(definition);
  }
  std::uint32_t dynamic_alignment = kDynamicSharedAlignment;
  for (const auto& [text, name] : references_) {
    const Definition definition = table.find(text, name);
    if (definition.kind == Definition::Kind::kDynamicShared) {
      dynamic_shared_ = true;
      dynamic_alignment = std::max(dynamic_alignment, table.variable(definition).byte_alignment());
    } else if (definition.kind == Definition::Kind::kVariable &&
               table.variable(definition).space == ptx::Space::kShared) {
      place_shared(definition);
    }
  }
  for (const auto& member : functions_) {
    for (const ptx::Variable& variable : member->parsed.variables) {
      if (variable.space != ptx::Space::kShared) continue;
      if (!root_is_kernel) {
        return Status(Code::kRefused, "function " + std::string(member->parsed.name) +
                                          " is called through a pointer and declares .shared " +
                                          std::string(variable.name) + " in its body");
      }
      if (variable.unsized()) {
        dynamic_shared_ = true;
      } else {
        source_.shared_offsets[&variable] = place(variable);
      }
    }
  }
  if (calls_pointers_) dynamic_shared_ = true;  // The callee may use it.
  if (dynamic_shared_) {
    shared_wide_ = (shared_wide_ + dynamic_alignment - 1) / dynamic_alignment * dynamic_alignment;
  }
  if (shared_wide_ > kSharedBytesMax) {
    return Status(Code::kRefused, std::string(functions_.front()->parsed.name) +
                                      " uses more than 1 GiB of shared memory");
  }
  shared_end_ = static_cast<std::uint32_t>(shared_wide_);
  dynamic_offset_ = shared_end_;
  for (const auto& member : functions_) {
    for (const ptx::Variable& variable : member->parsed.variables) {
      if (variable.space == ptx::Space::kShared && variable.unsized()) {
        source_.shared_offsets[&variable] = dynamic_offset_;
      }
    }
  }
  return Status();
}

// The parts that the translator sees ------------------------------------------------------------

void Unit::find_recursion() {
  // A depth-first walk. An edge to a function on the path is a cycle.
  enum class Mark : std::uint8_t { kNew, kOnPath, kDone };
  std::vector<Mark> marks(functions_.size(), Mark::kNew);
  std::vector<std::pair<std::size_t, std::size_t>> path{{0, 0}};
  marks[0] = Mark::kOnPath;
  while (!path.empty()) {
    auto& [index, next] = path.back();
    if (next == functions_[index]->callees.size()) {
      marks[index] = Mark::kDone;
      path.pop_back();
      continue;
    }
    const std::size_t callee = functions_[index]->callees[next++];
    if (marks[callee] == Mark::kOnPath) recursive_ = true;
    if (marks[callee] != Mark::kNew) continue;
    marks[callee] = Mark::kOnPath;
    path.emplace_back(callee, 0);
  }
}

std::string Unit::link_name(const Definition& function) const {
  if (function == functions_.front()->definition) return kRootSymbol;
  return context_.table().link_name(function);
}

void Unit::make_source() {
  for (const auto& member : functions_) {
    FunctionSource one{&member->parsed, scopes_[member->definition.text].get(),
                       link_name(member->definition)};
    if (member == functions_.front()) {
      source_.root = std::move(one);
    } else {
      source_.callees.push_back(std::move(one));
    }
  }
  std::unordered_map<std::string, bool> known;
  for (const auto& [text, name] : references_) {
    const Definition definition = context_.table().find(text, name);
    const Symbol symbol = find(text, name);
    if (symbol.kind == Symbol::Kind::kMemory && known.emplace(symbol.link_name, true).second) {
      symbols_.push_back({symbol.link_name, context_.variable_address(definition)});
    }
    if (symbol.kind == Symbol::Kind::kFunction &&
        known.emplace(symbol.descriptor_name, true).second) {
      symbols_.push_back({symbol.descriptor_name, context_.descriptor_address(definition)});
    }
  }
}

Symbol Unit::find(std::uint32_t text, std::string_view name) const {
  Symbol symbol;
  const Definition definition = context_.table().find(text, name);
  switch (definition.kind) {
    case Definition::Kind::kNone:
      if (is_runtime_call(name)) symbol.kind = Symbol::Kind::kRuntime;
      return symbol;
    case Definition::Kind::kDynamicShared:
      // A function that is called through a pointer reads the place from the block, because it
      // differs by kernel.
      symbol.kind = root().entry ? Symbol::Kind::kShared : Symbol::Kind::kDynamicShared;
      symbol.shared_offset = dynamic_offset_;
      return symbol;
    case Definition::Kind::kFunction:
      symbol.kind = Symbol::Kind::kFunction;
      symbol.link_name = link_name(definition);
      symbol.descriptor_name = "d." + context_.table().link_name(definition);
      if (const auto found = function_index_.find(key_of(definition));
          found != function_index_.end()) {
        symbol.function = &functions_[found->second]->parsed;
      }
      return symbol;
    case Definition::Kind::kVariable:
      break;
  }
  if (context_.table().variable(definition).space == ptx::Space::kShared) {
    const auto found = shared_offsets_.find(key_of(definition));
    if (found == shared_offsets_.end()) return symbol;
    symbol.kind = Symbol::Kind::kShared;
    symbol.shared_offset = found->second;
    return symbol;
  }
  symbol.kind = Symbol::Kind::kMemory;
  symbol.link_name = context_.table().link_name(definition);
  return symbol;
}

std::string Unit::cache_text() const {
  std::string text;
  for (const auto& member : functions_) {
    const std::string_view body = context_.table().function(member->definition).text;
    text += link_name(member->definition) + " " + std::to_string(member->definition.text) + " " +
            std::to_string(body.size()) + "\n";
    text.append(body).append("\n");
  }
  for (const auto& [number, name] : references_) {
    const Symbol symbol = find(number, name);
    text += std::to_string(number) + " " + name + " " +
            std::to_string(static_cast<int>(symbol.kind)) + " " +
            std::to_string(symbol.shared_offset) + " " + symbol.link_name + " " +
            symbol.descriptor_name + "\n";
  }
  for (const auto& member : functions_) {
    for (const ptx::Variable& variable : member->parsed.variables) {
      const auto found = source_.shared_offsets.find(&variable);
      if (found != source_.shared_offsets.end()) text += std::to_string(found->second) + "\n";
    }
  }
  return text;
}

Status collect_shared(const LinkTable& table, const Definition& function,
                      std::vector<Definition>& out) {
  auto parsed = ptx::parse_function(table.function(function));
  if (!parsed.ok()) return parsed.status();
  for (const ptx::Statement& statement : parsed->body) {
    if (statement.label != ptx::kNoIndex) continue;
    for_each_symbol(statement.instruction, [&](std::string_view name) {
      const Definition definition = table.find(function.text, name);
      if (definition.kind != Definition::Kind::kVariable ||
          table.variable(definition).space != ptx::Space::kShared) {
        return;
      }
      if (std::find(out.begin(), out.end(), definition) == out.end()) out.push_back(definition);
    });
  }
  return Status();
}

}  // namespace gpurun::emulated
