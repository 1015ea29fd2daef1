// Shapes: how values differ between the lanes of a slice.
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Operator.h>
#include <llvm/IR/PatternMatch.h>

#include "emulated/regions/thread_code.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
namespace match = llvm::PatternMatch;

// Bound of strides, which keeps a slice's strides small beside the margin of a guard.
constexpr std::int64_t kStrideMax = std::int64_t{1} << 20;
// A mask or shift of at least 32 lanes, which a slice seldom crosses.
constexpr unsigned kLaneBits = 5;

bool all_are(llvm::Instruction& instruction, const auto& what) {
  for (const Value* operand : instruction.operands()) {
    if (!what(operand)) return false;
  }
  return true;
}

std::int64_t small(std::int64_t stride) {
  return stride > kStrideMax || stride < -kStrideMax ? 0 : stride;
}

// The shape with this stride. Varying where the stride is large.
Shape affine_of(std::int64_t stride) {
  if (stride != 0 && small(stride) == 0) return Shape::varying();
  return Shape::affine(stride);
}

}  // namespace

llvm::Value* without_constant(Value* value, std::int64_t* added) {
  *added = 0;
  auto* type = llvm::dyn_cast<llvm::IntegerType>(value->getType());
  if (type == nullptr || type->getBitWidth() < 8 || type->getBitWidth() > 64) return value;
  const std::int64_t most = std::int64_t{1} << (type->getBitWidth() - 3);
  while (true) {
    Value* base = nullptr;
    const llvm::APInt* constant = nullptr;
    const bool sum = match::match(
        value,
        match::m_CombineOr(match::m_Add(match::m_Value(base), match::m_APInt(constant)),
                           match::m_DisjointOr(match::m_Value(base), match::m_APInt(constant))));
    if (!sum || !llvm::isa<llvm::Instruction>(base)) return value;
    const std::int64_t total = *added + constant->getSExtValue();
    if (total >= most || total <= -most) return value;
    *added = total;
    value = base;
  }
}

Shape ThreadCode::shape(const Value* value) const {
  if (llvm::isa<llvm::Constant, llvm::Argument>(value)) return Shape::uniform();
  const auto found = shapes_.find(value);
  return found == shapes_.end() ? Shape() : found->second;
}

void ThreadCode::find_shapes() {
  bool changed = true;
  while (changed) {
    changed = false;
    for (llvm::Instruction& instruction : llvm::instructions(function_)) {
      const Shape now = shape(&instruction);
      if (now.is_varying()) continue;
      Shape next = next_shape(instruction);
      // Shapes only get more varying. A value with two different shapes varies.
      if (now.kind != Shape::Kind::kUnset && !(next == now)) next = Shape::varying();
      if (next == now) continue;
      shapes_[&instruction] = next;
      changed = true;
    }
  }
  // Values that are never reached, or only from themselves.
  for (llvm::Instruction& instruction : llvm::instructions(function_)) {
    if (shape(&instruction).kind == Shape::Kind::kUnset) shapes_[&instruction] = Shape::varying();
  }
}

Shape ThreadCode::next_shape(llvm::Instruction& instruction) const {
  switch (leaf(&instruction)) {
    case Leaf::kX:
    case Leaf::kLinear:
      return Shape::affine(1);
    case Leaf::kY:
    case Leaf::kZ:
      return Shape::uniform();
    case Leaf::kNone:
      break;
  }
  if (is_block_constant(&instruction)) return Shape::uniform();
  if (llvm::isa<llvm::AllocaInst>(instruction)) {
    return Shape::affine(static_cast<std::int64_t>(local_bytes_));
  }
  if (auto* phi = llvm::dyn_cast<llvm::PHINode>(&instruction)) {
    Shape all;
    for (const Value* incoming : phi->incoming_values()) {
      const Shape one = shape(incoming);
      if (one.kind == Shape::Kind::kUnset) continue;
      if (all.kind != Shape::Kind::kUnset && !(all == one)) return Shape::varying();
      all = one;
    }
    return all;
  }
  bool known = true;
  for (const Value* operand : instruction.operands()) {
    if (llvm::isa<llvm::BasicBlock>(operand) || llvm::isa<llvm::MetadataAsValue>(operand)) continue;
    known = known && shape(operand).kind != Shape::Kind::kUnset;
  }
  if (!known) return {};
  if (auto* operation = llvm::dyn_cast<llvm::BinaryOperator>(&instruction)) {
    return binary_shape(*operation);
  }
  if (auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(&instruction)) {
    return address_shape(*address);
  }
  if (auto* cast = llvm::dyn_cast<llvm::CastInst>(&instruction)) return extended_shape(*cast);
  if (auto* select = llvm::dyn_cast<llvm::SelectInst>(&instruction)) {
    const Shape yes = shape(select->getTrueValue());
    const bool same = yes == shape(select->getFalseValue());
    return same && shape(select->getCondition()).is_uniform() ? yes : Shape::varying();
  }
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction)) {
    const bool once = load->isSimple() && shape(load->getPointerOperand()).is_uniform();
    return once ? Shape::uniform() : Shape::varying();
  }
  if (auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction)) {
    if (!call->doesNotAccessMemory() || !call->willReturn()) return Shape::varying();
  } else if (instruction.mayReadOrWriteMemory()) {
    return Shape::varying();
  }
  const bool uniform = all_are(instruction, [&](const Value* operand) {
    return llvm::isa<llvm::Function>(operand) || shape(operand).is_uniform();
  });
  return uniform ? Shape::uniform() : Shape::varying();
}

Shape ThreadCode::binary_shape(llvm::BinaryOperator& instruction) const {
  const Shape left = shape(instruction.getOperand(0));
  const Shape right = shape(instruction.getOperand(1));
  if (left.is_uniform() && right.is_uniform()) return Shape::uniform();
  if (left.is_varying() || right.is_varying()) return Shape::varying();
  if (!instruction.getType()->isIntegerTy() || instruction.getType()->getIntegerBitWidth() < 8 ||
      instruction.getType()->getIntegerBitWidth() > 64) {
    return Shape::varying();
  }
  const auto* by = llvm::dyn_cast<llvm::ConstantInt>(instruction.getOperand(1));
  switch (instruction.getOpcode()) {
    case llvm::Instruction::Add:
      return affine_of(left.stride + right.stride);
    case llvm::Instruction::Sub:
      return affine_of(left.stride - right.stride);
    case llvm::Instruction::Or:
      if (llvm::cast<llvm::PossiblyDisjointInst>(instruction).isDisjoint() && right.is_uniform()) {
        return left;
      }
      return Shape::varying();
    case llvm::Instruction::Mul:
      if (by == nullptr || small(by->getSExtValue()) == 0) return Shape::varying();
      return affine_of(left.stride * by->getSExtValue());
    case llvm::Instruction::Shl:
      if (by == nullptr || by->getZExtValue() > 20) return Shape::varying();
      return affine_of(left.stride * (std::int64_t{1} << by->getZExtValue()));
    case llvm::Instruction::And:
    case llvm::Instruction::LShr:
      return masked_shape(instruction, left);
    default:
      return Shape::varying();
  }
}

// The low bits of a lane's number grow from lane to lane and the high ones stay, while the slice
// crosses no boundary. Guards ensure that.
Shape ThreadCode::masked_shape(llvm::BinaryOperator& instruction, Shape left) const {
  const auto* by = llvm::dyn_cast<llvm::ConstantInt>(instruction.getOperand(1));
  if (by == nullptr || left.stride <= 0) return Shape::varying();
  const std::int64_t span = left.stride << kLaneBits;
  if (instruction.getOpcode() == llvm::Instruction::And) {
    const llvm::APInt& mask = by->getValue();
    if (!mask.isMask() || mask.countr_one() < kLaneBits ||
        (std::int64_t{1} << std::min(mask.countr_one(), 40u)) < span) {
      return Shape::varying();
    }
    return left;
  }
  const std::uint64_t bits = by->getZExtValue();
  if (bits < kLaneBits || bits > 40 || (std::int64_t{1} << bits) < span) {
    return Shape::varying();
  }
  return Shape::uniform();
}

Shape ThreadCode::address_shape(llvm::GetElementPtrInst& address) const {
  const llvm::DataLayout& layout = function_.getParent()->getDataLayout();
  const Shape base = shape(address.getPointerOperand());
  if (base.is_varying() || !address.getType()->isPointerTy()) return Shape::varying();
  llvm::MapVector<Value*, llvm::APInt> indices;
  llvm::APInt constant(64, 0);
  if (!address.collectOffset(layout, 64, indices, constant)) return Shape::varying();
  std::int64_t stride = base.stride;
  for (const auto& [index, scale] : indices) {
    const Shape one = shape(index);
    if (one.is_uniform()) continue;
    // A narrower index is extended, without a guard of ours.
    if (!one.is_affine() || !index->getType()->isIntegerTy(64)) return Shape::varying();
    if (small(scale.getSExtValue()) == 0) return Shape::varying();
    stride += one.stride * scale.getSExtValue();
  }
  return affine_of(stride);
}

Shape ThreadCode::extended_shape(llvm::CastInst& cast) const {
  const Shape from = shape(cast.getOperand(0));
  if (from.is_uniform() || from.is_varying()) return from;
  const llvm::Type* to_type = cast.getType();
  switch (cast.getOpcode()) {
    case llvm::Instruction::Trunc: {
      const unsigned bits = to_type->getIntegerBitWidth();
      // A stride that does not fit is another one, modulo the width.
      if (bits < 32) return Shape::varying();
      return from;
    }
    case llvm::Instruction::ZExt:
    case llvm::Instruction::SExt: {
      std::int64_t added = 0;
      const Value* base = without_constant(cast.getOperand(0), &added);
      const unsigned bits = cast.getOperand(0)->getType()->getIntegerBitWidth();
      if (bits < 32 || to_type->getIntegerBitWidth() > 64) return Shape::varying();
      return llvm::isa<llvm::Instruction>(base) ? from : Shape::varying();
    }
    case llvm::Instruction::PtrToInt:
    case llvm::Instruction::IntToPtr:
      if (cast.getOperand(0)->getType()->isIntegerTy(64) || to_type->isIntegerTy(64)) return from;
      return Shape::varying();
    default:
      return Shape::varying();
  }
}

// Guards ------------------------------------------------------------------------------------------

void ThreadCode::find_guards() {
  const auto want = [this](llvm::Value* value, Guard guard) {
    Guard& known = small_[llvm::cast<llvm::Instruction>(value)];
    // A value that is small as an unsigned number is also small as a signed one.
    if (known == Guard::kNone || guard == Guard::kSmallUnsigned) known = guard;
  };
  for (llvm::Instruction& instruction : llvm::instructions(function_)) {
    if (is_ambient(&instruction)) continue;
    const Shape now = shape(&instruction);
    if (llvm::isa<llvm::ZExtInst, llvm::SExtInst>(instruction) && now.is_affine()) {
      std::int64_t added = 0;
      Value* base = without_constant(instruction.getOperand(0), &added);
      const bool is_unsigned = llvm::isa<llvm::ZExtInst>(instruction);
      if (is_unsigned && added < 0) base = instruction.getOperand(0);
      if (leaf(base) != Leaf::kNone) continue;  // Small by itself.
      small_guards_.insert(llvm::cast<llvm::Instruction>(base));
      const Guard guard = is_unsigned ? Guard::kSmallUnsigned : Guard::kSmallSigned;
      // All sums from the base to the extended value.
      Value* sum = instruction.getOperand(0);
      for (; sum != base; sum = llvm::cast<llvm::Instruction>(sum)->getOperand(0)) want(sum, guard);
      want(base, guard);
      continue;
    }
    const unsigned opcode = instruction.getOpcode();
    const bool masks = opcode == llvm::Instruction::And || opcode == llvm::Instruction::LShr;
    if (masks && !now.is_varying() && !shape(instruction.getOperand(0)).is_uniform()) {
      own_guards_.insert(&instruction);
    }
  }
}

void ThreadCode::split_at_guards() {
  llvm::SmallVector<llvm::Instruction*, 16> all;
  for (llvm::Instruction& instruction : llvm::instructions(function_)) {
    if (is_guarded(&instruction)) all.push_back(&instruction);
  }
  for (llvm::Instruction* value : all) {
    // Guards go before values that would have another shape, and after values from which others are
    // computed.
    if (must_not_cross(value)) {
      guards_at_[value->getParent()->splitBasicBlock(value, "uncrossed")].push_back(value);
    }
    if (!small_guards_.contains(value)) continue;
    llvm::BasicBlock* block = value->getParent();
    const bool phi = llvm::isa<llvm::PHINode>(value);
    llvm::Instruction* behind = phi ? block->getFirstNonPHI() : value->getNextNode();
    llvm::BasicBlock* rest = nullptr;
    // The phis of one block are tested together.
    if (phi && block->size() > 0 && behind == block->getTerminator() &&
        guards_at_.contains(block->getSingleSuccessor())) {
      rest = block->getSingleSuccessor();
    } else {
      rest = block->splitBasicBlock(behind, "guarded");
    }
    guards_at_[rest].push_back(value);
  }
  // Cuts are where their calls are.
  cut_of_.clear();
  for (std::size_t i = 0; i < cuts_.size(); ++i) {
    cuts_[i].block = cuts_[i].call->getParent();
    cut_of_[cuts_[i].block] = static_cast<int>(i);
  }
}

void ThreadCode::split_at_divergence() {
  llvm::SmallVector<llvm::Instruction*, 16> ends;
  for (llvm::BasicBlock& block : function_) {
    llvm::Instruction* end = block.getTerminator();
    const Value* condition = nullptr;
    if (auto* branch = llvm::dyn_cast<llvm::BranchInst>(end)) {
      if (branch->isConditional()) condition = branch->getCondition();
    } else if (auto* choice = llvm::dyn_cast<llvm::SwitchInst>(end)) {
      condition = choice->getCondition();
    }
    if (condition != nullptr && !shape(condition).is_uniform()) ends.push_back(end);
  }
  for (llvm::Instruction* end : ends) {
    diverging_.insert(end->getParent()->splitBasicBlock(end, "parting"));
  }
}

llvm::ArrayRef<llvm::Instruction*> ThreadCode::guards_at(const llvm::BasicBlock* block) const {
  const auto found = guards_at_.find(block);
  if (found == guards_at_.end()) return {};
  return found->second;
}

}  // namespace gpurun::emulated
