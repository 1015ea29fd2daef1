// Planner: finds the lifetime of each tile in one walk, and places the tiles by their lifetimes.
#include "emulated/tile/plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "emulated/tile/cursor.h"
#include "emulated/tile/operations.h"

namespace gpurun::emulated::tile {
namespace {

constexpr std::uint64_t kTileAlignment = 64;

class Planner {
 public:
  Planner(const Program& program, const Function& function)
      : program_(program), function_(function), lives_(function.value_types.size()) {
    plan_.in_register.resize(lives_.size());
    plan_.offsets.resize(lives_.size());
    for (ValueId value = 0; value < lives_.size(); ++value) {
      lives_[value].root = value;
      plan_.in_register[value] = type_of(value).is_tile() && type_of(value).elements() == 1;
    }
  }

  Result<Plan> run() {
    walk(function_.body);
    if (failure_.ok()) place();
    if (!failure_.ok()) return failure_;
    return std::move(plan_);
  }

 private:
  // Positions count operations and ends of regions.
  struct Life {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    ValueId root = 0;  // The value that owns its memory.
    bool placed = false;
  };
  struct Scope {
    std::uint32_t start;
    // Values from outside that it uses, each once. An inner use counts for all scopes around it.
    std::set<ValueId> from_outside;
  };
  // `result` may take the memory of `operand`, if that is not needed any more.
  struct Reuse {
    ValueId result;
    ValueId operand;
  };

  const Type& type_of(ValueId value) const { return program_.type_of(function_, value); }
  bool in_memory(ValueId value) const {
    return type_of(value).is_tile() && !plan_.in_register[value];
  }
  ValueId root_of(ValueId value) const {
    while (lives_[value].root != value) value = lives_[value].root;
    return value;
  }

  void fail(const Operation& operation, const std::string& what, int error = kInvalidImage) {
    if (!failure_.ok()) return;
    failure_ = Status::cuda(error, "Tile IR image: kernel " + function_.name + ", byte " +
                                       std::to_string(operation.at) + ", " +
                                       operation_name(operation.code) + ": " + what);
  }

  bool same_type(ValueId a, ValueId b) const {
    return function_.value_types[a] == function_.value_types[b];
  }

  void define(ValueId value, std::uint32_t at) { lives_[value].first = lives_[value].last = at; }

  void use(ValueId value, std::uint32_t at) {
    const ValueId root = root_of(value);
    lives_[root].last = std::max(lives_[root].last, at);
    for (Scope& scope : scopes_) {
      if (lives_[root].first < scope.start) scope.from_outside.insert(root);
    }
  }

  void walk(const Block& block) {
    for (const Operation& operation : block.operations) {
      if (!failure_.ok()) return;
      const std::uint32_t at = ++position_;
      for (const ValueId operand : operation.operands) use(operand, at);
      for (const ValueId result : operation.results) define(result, at);
      switch (operation.code) {
        case kFor:
          walk_for(operation, at);
          break;
        case kLoop:
          walk_loop(operation, at);
          break;
        case kIf:
          walk_if(operation);
          break;
        case kReduce:
          walk_reduce(operation, at);
          break;
        default:
          simple(operation);
      }
    }
  }

  // Values that are needed after the region, or again in its next iteration, live until its end.
  void walk_region(const Operation& operation, const Block& region, std::uint32_t at) {
    scopes_.push_back({at, {}});
    for (const ValueId argument : region.arguments) define(argument, at);
    walk(region);
    const std::uint32_t end = ++position_;
    const std::set<ValueId> outside = std::move(scopes_.back().from_outside);
    scopes_.pop_back();
    for (const ValueId value : outside) use(value, end);
    for (const ValueId argument : region.arguments) use(argument, end);
    for (const ValueId result : operation.results) use(result, end);
  }

  void walk_for(const Operation& operation, std::uint32_t at) {
    const Block& region = operation.regions.front();
    const std::size_t carried = operation.results.size();
    bool fits = operation.operands.size() == carried + 3 &&
                region.arguments.size() == carried + 1 &&
                same_type(operation.operands[0], operation.operands[1]) &&
                same_type(operation.operands[0], operation.operands[2]) &&
                same_type(operation.operands[0], region.arguments[0]);
    for (std::size_t i = 0; fits && i < carried; ++i) {
      fits = same_type(operation.operands[i + 3], operation.results[i]) &&
             same_type(operation.operands[i + 3], region.arguments[i + 1]);
    }
    if (!fits) return fail(operation, "its region does not fit");
    walk_region(operation, region, at);
    // The results are what the last iteration leaves.
    for (std::size_t i = 0; i < carried; ++i) {
      lives_[operation.results[i]].root = region.arguments[i + 1];
    }
  }

  void walk_loop(const Operation& operation, std::uint32_t at) {
    const Block& region = operation.regions.front();
    bool fits = operation.operands.size() == region.arguments.size();
    for (std::size_t i = 0; fits && i < region.arguments.size(); ++i) {
      fits = same_type(operation.operands[i], region.arguments[i]);
    }
    if (!fits) return fail(operation, "its region does not fit");
    walk_region(operation, region, at);
  }

  void walk_if(const Operation& operation) {
    for (const Block& region : operation.regions) {
      if (!region.arguments.empty()) return fail(operation, "its region does not fit");
      walk(region);
    }
    if (operation.regions[0].operations.empty() ||
        (operation.regions[1].operations.empty() && !operation.results.empty())) {
      return fail(operation, "a region is missing");
    }
    const std::uint32_t end = ++position_;
    for (const ValueId result : operation.results) use(result, end);
  }

  void walk_reduce(const Operation& operation, std::uint32_t at) {
    const Block& region = operation.regions.front();
    const std::size_t count = operation.operands.size();
    bool fits = count != 0 && operation.results.size() == count &&
                operation.identities.size() == count && region.arguments.size() == 2 * count;
    for (std::size_t i = 0; fits && i < region.arguments.size(); ++i) {
      fits = plan_.in_register[region.arguments[i]];
    }
    if (!fits) return fail(operation, "its region does not fit");
    walk_region(operation, region, at);
    for (const ValueId operand : operation.operands) use(operand, position_);
  }

  // Whether every element of the result is the same and can be computed from registers.
  bool is_uniform(const Operation& operation, const Type& result) const {
    if (operation.code == kConstant) {
      return is_splat(result, operation.constant);
    }
    const OperationForm* form = form_of(operation.code);
    if (!form->elementwise && operation.code != kBroadcast && operation.code != kReshape) {
      return false;
    }
    return std::all_of(operation.operands.begin(), operation.operands.end(),
                       [this](ValueId operand) { return plan_.in_register[operand]; });
  }

  void simple(const Operation& operation) {
    if (operation.results.empty()) return;
    const ValueId result = operation.results.front();
    const Type& type = type_of(result);
    if (!type.is_tile() || plan_.in_register[result]) return;
    if (is_uniform(operation, type)) {
      plan_.in_register[result] = true;
      return;
    }
    if (operation.code == kMmaF || operation.code == kMmaI) {
      const ValueId sum = operation.operands[2];
      if (sum != operation.operands[0] && sum != operation.operands[1]) {
        reuses_.push_back({result, sum});
      }
      return;
    }
    if (!form_of(operation.code)->elementwise) return;
    for (const ValueId operand : operation.operands) {
      if (in_memory(operand)) reuses_.push_back({result, operand});
    }
  }

  // Called when all lifetimes are known.
  bool take_over(ValueId value, const std::vector<Reuse>& reuses) {
    for (const Reuse& reuse : reuses) {
      if (reuse.result != value || !in_memory(reuse.operand)) continue;
      const Type& from = type_of(reuse.operand);
      const Type& to = type_of(value);
      const ValueId root = root_of(reuse.operand);
      const bool fits = from.elements() == to.elements() &&
                        bytes_of_element(from.element) >= bytes_of_element(to.element);
      if (!fits || !lives_[root].placed || lives_[root].last != lives_[value].first) continue;
      lives_[value].root = root;
      lives_[root].last = lives_[value].last;
      return true;
    }
    return false;
  }

  void place() {
    std::vector<ValueId> order;
    for (ValueId value = 0; value < lives_.size(); ++value) {
      if (in_memory(value) && lives_[value].root == value) order.push_back(value);
    }
    std::sort(order.begin(), order.end(), [this](ValueId a, ValueId b) {
      return std::pair(lives_[a].first, a) < std::pair(lives_[b].first, b);
    });
    std::size_t next = 0;  // reuses_ are in the order of their results, too.
    std::vector<ValueId> present;
    for (const ValueId value : order) {
      while (next < reuses_.size() && lives_[reuses_[next].result].first < lives_[value].first) {
        ++next;
      }
      std::vector<Reuse> reuses;
      for (std::size_t i = next;
           i < reuses_.size() && lives_[reuses_[i].result].first == lives_[value].first; ++i) {
        reuses.push_back(reuses_[i]);
      }
      if (take_over(value, reuses)) continue;
      if (!place_beside(value, present)) return;
    }
    for (ValueId value = 0; value < lives_.size(); ++value) {
      plan_.offsets[value] = plan_.offsets[root_of(value)];
    }
  }

  // Places it in the first gap between the values that are still needed, which are in offset order.
  bool place_beside(ValueId value, std::vector<ValueId>& present) {
    std::erase_if(present, [&](ValueId other) { return lives_[other].last < lives_[value].first; });
    const std::uint64_t bytes = type_of(value).bytes();
    std::uint64_t offset = 0;
    auto before = present.begin();
    for (; before != present.end(); ++before) {
      if (plan_.offsets[*before] >= offset + bytes) break;
      const std::uint64_t end = plan_.offsets[*before] + type_of(*before).bytes();
      offset = (end + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
    }
    if (bytes > kLocalBytesMax || offset > kLocalBytesMax - bytes) {
      failure_ = Status::cuda(kInvalidPtx,
                              "Tile IR image: kernel " + function_.name + ": its tiles need over " +
                                  std::to_string(kLocalBytesMax / 1024) + " KiB at a time");
      return false;
    }
    present.insert(before, value);
    plan_.offsets[value] = offset;
    plan_.local_bytes = std::max(plan_.local_bytes, offset + bytes);
    lives_[value].placed = true;
    return true;
  }

  const Program& program_;
  const Function& function_;
  Plan plan_;
  std::vector<Life> lives_;
  std::vector<Scope> scopes_;
  std::vector<Reuse> reuses_;
  std::uint32_t position_ = 0;
  Status failure_;
};

}  // namespace

Result<Plan> make_plan(const Program& program, const Function& function) {
  return Planner(program, function).run();
}

}  // namespace gpurun::emulated::tile
