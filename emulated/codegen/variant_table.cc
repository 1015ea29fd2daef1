// Expansion of the patterns of all rows, and lookup of variants by name.
#include "emulated/codegen/variant_table.h"

#include <algorithm>
#include <unordered_map>

namespace gpurun::emulated {
namespace {

void expand(std::string_view pattern, const std::string& prefix, std::vector<std::string>& out) {
  const std::size_t open = pattern.find('{');
  if (open == std::string_view::npos) {
    out.push_back(prefix + std::string(pattern));
    return;
  }
  const std::size_t close = pattern.find('}', open);
  std::string_view alternatives = pattern.substr(open + 1, close - open - 1);
  const std::string_view rest = pattern.substr(close + 1);
  for (;;) {
    const std::size_t comma = alternatives.find(',');
    std::string next = prefix + std::string(pattern.substr(0, open));
    next += alternatives.substr(0, comma);
    expand(rest, next, out);
    if (comma == std::string_view::npos) return;
    alternatives.remove_prefix(comma + 1);
  }
}

// Whether the modifier's position has a meaning, as of types, state spaces and matrix layouts
// ("cvt.f32.f16").
bool keeps_place(std::string_view modifier) {
  return !ptx::parse_type(modifier).is_none() || ptx::parse_space(modifier) != ptx::Space::kNone ||
         modifier == "row" || modifier == "col" || modifier.starts_with("e4m3") ||
         modifier.starts_with("e5m2") || modifier == "tf32" || modifier == "s4" ||
         modifier == "u4" || modifier == "b1";
}

struct Table {
  std::unordered_map<std::string, EmitFunction> by_key;
  std::vector<std::string> names;
};

Table* make_table() {
  // Never destroyed, because threads may still translate while the process ends.
  auto* table = new Table;
  const std::span<const VariantRow> subjects[] = {
      integer_rows(), bit_rows(),    float_rows(),   math_rows(),    convert_rows(),
      compare_rows(), memory_rows(), control_rows(), barrier_rows(), cluster_rows(),
      async_rows(),   matrix_rows(), warp_rows(),    atomic_rows(),  narrow_convert_rows(),
      video_rows(),   space_rows(),  texture_rows(), surface_rows()};
  for (std::span<const VariantRow> rows : subjects) {
    for (const VariantRow& row : rows) {
      std::vector<std::string> names;
      expand(row.pattern, "", names);
      for (std::string& name : names) {
        if (table->by_key.emplace(variant_key(name), row.emit).second) {
          table->names.push_back(std::move(name));
        }
      }
    }
  }
  std::sort(table->names.begin(), table->names.end());
  return table;
}

const Table& table() {
  static const Table* const only = make_table();
  return *only;
}

bool is_memory_opcode(std::string_view opcode) {
  return opcode == "ld" || opcode == "ldu" || opcode == "st" || opcode == "atom" ||
         opcode == "red" || opcode == "fence" || opcode == "membar" || opcode == "mbarrier" ||
         opcode == "cp" || opcode == "prefetch" || opcode == "prefetchu" || opcode == "wmma" ||
         opcode == "ldmatrix" || opcode == "stmatrix" || opcode == "applypriority" ||
         opcode == "discard" || opcode == "createpolicy";
}

bool is_memory_hint(std::string_view modifier) {
  static constexpr std::string_view kHints[] = {"ca", "cg",  "cs",  "lu",      "cv",  "wb",  "wt",
                                                "nc", "gpu", "sys", "cluster", "cta", "weak"};
  if (modifier.starts_with("L1::") || modifier.starts_with("L2::")) return true;
  return std::find(std::begin(kHints), std::end(kHints), modifier) != std::end(kHints);
}

bool is_ignored(const ptx::Instruction& instruction, std::string_view modifier) {
  if (modifier == "uni" && instruction.opcode != "vote") return true;
  if (modifier == "aligned") return true;
  if (instruction.opcode == "membar") return false;
  return is_memory_opcode(instruction.opcode) && is_memory_hint(modifier);
}

}  // namespace

std::string canonical_name(const ptx::Instruction& instruction) {
  std::string name(instruction.opcode);
  for (std::string_view modifier : instruction.modifiers) {
    if (is_ignored(instruction, modifier)) continue;
    name += '.';
    // shared::cta is shared. shared::cluster is shared too, because a cluster is one block.
    if (modifier.starts_with("shared::")) modifier = "shared";
    if (modifier.starts_with("param::")) modifier = "param";
    name += modifier;
  }
  return name;
}

std::string variant_key(const ptx::Instruction& instruction) {
  return variant_key(canonical_name(instruction));
}

// NVIDIA's assembler accepts them in any order, and its libraries use that ("rcp.approx.f32.ftz",
// "ld.global.acquire.gpu.b32").
std::string variant_key(std::string_view name) {
  std::vector<std::string_view> sorted;
  std::vector<std::string_view> kept;
  std::size_t dot = name.find('.');
  std::string key(name.substr(0, dot));
  while (dot != std::string_view::npos) {
    name.remove_prefix(dot + 1);
    dot = name.find('.');
    const std::string_view modifier = name.substr(0, dot);
    (keeps_place(modifier) ? kept : sorted).push_back(modifier);
  }
  std::sort(sorted.begin(), sorted.end());
  sorted.insert(sorted.end(), kept.begin(), kept.end());
  for (std::string_view modifier : sorted) {
    key += '.';
    key += modifier;
  }
  return key;
}

// Any variant of it faults, so none is right or wrong.
EmitFunction find_variant(std::string_view name) {
  if (name.starts_with("multimem.")) return &emit_multimem;
  const auto& map = table().by_key;
  const auto found = map.find(variant_key(name));
  return found == map.end() ? nullptr : found->second;
}

const std::vector<std::string>& accepted_variants() { return table().names; }

}  // namespace gpurun::emulated
