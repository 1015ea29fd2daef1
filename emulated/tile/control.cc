// Branches, loops, and the operations that leave them.
#include <algorithm>
#include <utility>

#include "emulated/tile/kernel_writer.h"

namespace gpurun::emulated::tile {

void KernelWriter::assign(const std::vector<ValueId>& from, const std::vector<ValueId>& to) {
  if (!require(from.size() == to.size(), "another number of values")) return;
  std::vector<std::pair<ValueId, std::string>> registers;
  std::vector<std::pair<ValueId, ValueId>> tiles;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Type& type = type_of(to[i]);
    if (!require(function_.value_types[from[i]] == function_.value_types[to[i]],
                 "values of other types")) {
      return;
    }
    if (type.kind == Type::Kind::kToken) continue;
    if (!require(type.is_tile(), "views cannot be carried")) return;
    if (!plan_.in_register[to[i]]) {
      const bool there =
          !plan_.in_register[from[i]] && plan_.offsets[from[i]] == plan_.offsets[to[i]];
      if (!there) tiles.emplace_back(from[i], to[i]);
      continue;
    }
    const char* move = bytes_of_element(type.element) == 8 ? "mov.b64" : "mov.b32";
    registers.emplace_back(to[i], text_.to(text_.of(type.element), move, register_of(from[i])));
  }
  // A target can be the source only of a value of its own type, so all values of one type go at
  // once.
  while (!tiles.empty()) {
    const TypeIndex type = function_.value_types[tiles.front().second];
    std::vector<std::pair<ValueId, ValueId>> group;
    std::erase_if(tiles, [&](const std::pair<ValueId, ValueId>& tile) {
      const bool same = function_.value_types[tile.second] == type;
      if (same) group.push_back(tile);
      return same;
    });
    repeat(program_.types[type].elements(), [&](const std::string& index) {
      Registers bits;
      for (const auto& [source, target] : group) bits.push_back(load_element(source, index));
      for (std::size_t i = 0; i < group.size(); ++i) {
        store_element(group[i].second, index, bits[i]);
      }
    });
  }
  for (const auto& [target, bits] : registers) set_register(target, bits);
}

void KernelWriter::emit_if(const Operation& operation) {
  const ValueId condition = operation.operands.front();
  const bool fits = is_scalar(condition) && element_of(condition) == Element::kInt1;
  if (!require(fits, "a condition that is not a scalar i1")) return;
  const std::string other = text_.label();
  const std::string end = text_.label();
  text_.branch_if(text_.to_predicate("setp.eq.b32", register_of(condition), "0"), other);
  scopes_.push_back({kIf, operation.results, {}, "", end, {}});
  emit_block(operation.regions[0]);
  text_.put_label(other);
  emit_block(operation.regions[1]);
  text_.put_label(end);
  if (failure_.ok()) scopes_.pop_back();
}

// The counter is compared before it is increased, so that the loop also ends when the bound is near
// the type's largest number.
void KernelWriter::emit_for(const Operation& operation) {
  const Block& region = operation.regions.front();
  const ValueId counter = region.arguments.front();
  const Element element = element_of(counter);
  if (!require(is_scalar(counter) && is_integer(element), "a counter that is not a scalar integer"))
    return;
  if (bits_of_element(element) < 32) {
    not_translated(std::string("counting by ") + element_name(element));
    return;
  }
  const bool wide = bytes_of_element(element) == 8;
  const bool is_unsigned = (operation.flags & 1) != 0;
  const std::string bits = wide ? "64" : "32";
  const char* move = wide ? "mov.b64" : "mov.b32";
  // Copies, because the values may be a loop's own.
  const std::string upper = text_.to(text_.of(element), move, register_of(operation.operands[1]));
  const std::string step = text_.to(text_.of(element), move, register_of(operation.operands[2]));
  const std::vector<ValueId> carried(region.arguments.begin() + 1, region.arguments.end());
  assign({operation.operands.begin() + 3, operation.operands.end()}, carried);
  set_register(counter, register_of(operation.operands[0]));
  const std::string again = text_.label();
  const std::string next = text_.label();
  const std::string end = text_.label();
  const std::string compare = "setp.ge" + std::string(is_unsigned ? ".u" : ".s") + bits;
  text_.branch_if(text_.to_predicate(compare.c_str(), register_of(counter), upper), end);
  text_.put_label(again);
  scopes_.push_back({kFor, {}, carried, next, end, {}});
  emit_block(region);
  if (!failure_.ok()) return;
  scopes_.pop_back();
  text_.put_label(next);
  const std::string left =
      text_.to(text_.of(element), ("sub.u" + bits).c_str(), upper, register_of(counter));
  text_.branch_if(text_.to_predicate(("setp.le.u" + bits).c_str(), left, step), end);
  text_.line("add.u", bits, " ", register_of(counter), ", ", register_of(counter), ", ", step);
  text_.branch(again);
  text_.put_label(end);
  // Tiles have the same memory already (plan.h).
  for (std::size_t i = 0; i < carried.size(); ++i) {
    if (plan_.in_register[carried[i]]) {
      set_register(operation.results[i], register_of(carried[i]));
    }
  }
}

void KernelWriter::emit_loop(const Operation& operation) {
  const Block& region = operation.regions.front();
  assign(operation.operands, region.arguments);
  const std::string again = text_.label();
  const std::string end = text_.label();
  text_.put_label(again);
  scopes_.push_back({kLoop, operation.results, region.arguments, again, end, {}});
  emit_block(region);
  if (failure_.ok()) scopes_.pop_back();
  text_.put_label(end);
}

void KernelWriter::emit_terminator(const Operation& operation) {
  if (operation.code == kReturn) {
    const bool fits = operation.operands.empty() &&
                      std::none_of(scopes_.begin(), scopes_.end(),
                                   [](const Scope& scope) { return scope.code == kReduce; });
    if (require(fits, "not here")) text_.branch("$exit");
    return;
  }
  // A yield belongs to the operation around it, the others to the loop around it.
  std::size_t depth = scopes_.size();
  if (operation.code != kYield) {
    while (depth > 0 && scopes_[depth - 1].code == kIf) --depth;
  }
  if (!require(depth > 0, "not here")) return;
  const Scope scope = scopes_[depth - 1];
  if (operation.code == kYield && scope.code == kReduce) {
    if (!require(operation.operands.size() == scope.sums.size(), "another number of values")) {
      return;
    }
    Registers sums;
    for (std::size_t i = 0; i < scope.sums.size(); ++i) {
      const ValueId value = operation.operands[i];
      const bool wide = scope.sums[i][1] == 'd';
      if (!require(is_scalar(value) && (bytes_of_element(element_of(value)) == 8) == wide,
                   "values of other types")) {
        return;
      }
      sums.push_back(
          text_.to(text_.of(element_of(value)), wide ? "mov.b64" : "mov.b32", register_of(value)));
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      text_.line(scope.sums[i][1] == 'd' ? "mov.b64 " : "mov.b32 ", scope.sums[i], ", ", sums[i]);
    }
    return;
  }
  const bool fits = operation.code == kYield      ? scope.code == kIf
                    : operation.code == kContinue ? scope.code == kFor || scope.code == kLoop
                                                  : scope.code == kLoop;
  if (!require(fits, "not here")) return;
  const bool on = operation.code == kContinue;
  assign(operation.operands, on ? scope.carried : scope.results);
  text_.branch(on ? scope.next : scope.end);
}

void KernelWriter::emit_assert(const Operation& operation) {
  const ValueId condition = operation.operands.front();
  const Type& type = type_of(condition);
  if (!require(type.is_tile() && type.element == Element::kInt1,
               "a condition that is not a tile of i1"))
    return;
  repeat(type.elements(), [&](const std::string& index) {
    const std::string fine = text_.label();
    const std::string truth = load_element(condition, index);
    text_.branch_if(text_.to_predicate("setp.ne.b32", truth, "0"), fine);
    text_.line("trap");
    text_.put_label(fine);
  });
}

}  // namespace gpurun::emulated::tile
