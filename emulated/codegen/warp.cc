// Warp instructions (PTX ISA, sections 9.7.9.5 shfl and 9.7.13 vote, match, activemask, redux,
// elect, bar.warp). The engine runs one function for all lanes. The forms without .sync are
// refused, because PTX dropped them with sm_70.
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"
#include "emulated/codegen/warp_call.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

llvm::SmallVector<llvm::Value*, 8> call_warp(FunctionBuilder& b, const Operation& op,
                                             llvm::Value* mask, const char* function,
                                             llvm::ArrayRef<llvm::Value*> inputs,
                                             unsigned result_words) {
  llvm::Value* in = b.warp_words();
  const auto word = [&](unsigned index) {
    return b.ir.CreateConstInBoundsGEP1_64(b.int_type(32), in, index);
  };
  llvm::Value* out = word(kWarpInputWordsMax);
  for (unsigned i = 0; i < inputs.size(); ++i) b.ir.CreateStore(inputs[i], word(i));
  llvm::Value* code = llvm::ConstantPointerNull::get(b.pointer_type());
  if (function != nullptr) code = b.helper_address(function);
  b.call_runtime("warp", llvm::Type::getVoidTy(b.context()),
                 {b.constant(32, op.site), mask, code, in, out});
  llvm::SmallVector<llvm::Value*, 8> results;
  for (unsigned i = 0; i < result_words; ++i) {
    results.push_back(b.ir.CreateLoad(b.int_type(32), word(kWarpInputWordsMax + i)));
  }
  return results;
}

namespace {

using llvm::Value;

struct Result {
  Value* value;
  Value* predicate;
};

Value* exchange(FunctionBuilder& b, const Operation& op, Value* mask, Value* function,
                llvm::ArrayRef<Value*> inputs) {
  llvm::SmallVector<Value*, 8> arguments{b.constant(32, op.site), mask, function};
  arguments.append(inputs.begin(), inputs.end());
  while (arguments.size() < 3 + kExchangeInputs) arguments.push_back(b.constant(32, 0));
  return b.call_runtime("exchange", b.int_type(64), arguments);
}

Result run(FunctionBuilder& b, const Operation& op, Value* mask, const std::string& function,
           llvm::ArrayRef<Value*> inputs) {
  Value* words = exchange(b, op, mask, b.helper_address(function.c_str()), inputs);
  Value* second = b.ir.CreateTrunc(b.ir.CreateLShr(words, 32), b.int_type(32));
  return {b.ir.CreateTrunc(words, b.int_type(32)), b.ir.CreateICmpNE(second, b.constant(32, 0))};
}

std::string function_name(const char* family, std::string_view mode) {
  return std::string("gpurun_warp_") + family + "_" + std::string(mode);
}

std::string_view one_of(FunctionBuilder& b, const Operation& op,
                        std::initializer_list<std::string_view> modes) {
  for (std::string_view mode : modes) {
    if (op.has(mode)) return mode;
  }
  b.refuse("unknown mode");
  return *modes.begin();
}

void emit_shfl(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 5, 5);
  const std::string name = function_name("shfl", one_of(b, op, {"up", "down", "bfly", "idx"}));
  const Result result = run(
      b, op, b.read(b.operand(op, 4), 32), name,
      {b.read(b.operand(op, 1), 32), b.read(b.operand(op, 2), 32), b.read(b.operand(op, 3), 32)});
  b.write(b.operand(op, 0), result.value);
  b.write_second(b.operand(op, 0), result.predicate);
}

void emit_vote(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  const std::string_view mode = one_of(b, op, {"all", "any", "uni", "ballot"});
  Value* value = b.ir.CreateZExt(b.read_predicate(b.operand(op, 1)), b.int_type(32));
  const Result result =
      run(b, op, b.read(b.operand(op, 2), 32), function_name("vote", mode), {value});
  if (mode == "ballot") return b.write(b.operand(op, 0), result.value);
  b.write(b.operand(op, 0), b.ir.CreateICmpNE(result.value, b.constant(32, 0)));
}

void emit_match(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  const std::string_view mode = one_of(b, op, {"any", "all"});
  Value* mask = b.read(b.operand(op, 2), 32);
  Value* value = b.ir.CreateZExt(b.read(b.operand(op, 1), op.type.bits), b.int_type(64));
  const Result result = run(b, op, mask, function_name("match", mode),
                            {b.ir.CreateTrunc(value, b.int_type(32)),
                             b.ir.CreateTrunc(b.ir.CreateLShr(value, 32), b.int_type(32))});
  b.write(b.operand(op, 0), result.value);
  b.write_second(b.operand(op, 0), result.predicate);
}

void emit_redux(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  std::string name =
      function_name("redux", one_of(b, op, {"add", "and", "or", "xor", "min", "max"}));
  if (op.has("min") || op.has("max")) name += op.type.is_signed() ? "_s32" : "_u32";
  Value* mask = b.read(b.operand(op, 2), 32);
  b.write(b.operand(op, 0), run(b, op, mask, name, {b.read(b.operand(op, 1), 32)}).value);
}

void emit_activemask(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 1);
  b.write(b.operand(op, 0), b.call_runtime("active_mask", b.int_type(32), {b.position()}));
}

void emit_elect(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const Result result = run(b, op, b.read(b.operand(op, 1), 32), "gpurun_warp_elect", {});
  b.write(b.operand(op, 0), result.value);
  b.write_second(b.operand(op, 0), result.predicate);
}

void emit_warp_barrier(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 1);
  Value* nothing = llvm::ConstantPointerNull::get(b.pointer_type());
  exchange(b, op, b.read(b.operand(op, 0), 32), nothing, {});
}

constexpr VariantRow kWarpRows[] = {
    {"shfl.sync.{up,down,bfly,idx}.b32", emit_shfl},
    {"vote.sync.{all,any,uni}.pred", emit_vote},
    {"vote.sync.ballot.b32", emit_vote},
    {"match.{any,all}.sync.{b32,b64}", emit_match},
    {"redux.sync.{add,min,max}.{u32,s32}", emit_redux},
    {"redux.sync.{and,or,xor}.b32", emit_redux},
    {"activemask.b32", emit_activemask},
    {"elect.sync", emit_elect},
    {"bar.warp.sync", emit_warp_barrier},
};

}  // namespace

std::span<const VariantRow> warp_rows() { return kWarpRows; }

}  // namespace gpurun::emulated
