// KernelWriter: writes one function of Tile IR as a PTX kernel. A block computes its tiles with one
// thread. Each operation is a loop over its elements, and each value lies where the plan puts it
// (plan.h).
//
// The files by groups of operations: integer.cc and floating.cc (element by element), shape.cc,
// memory.cc (pointers), view.cc (tensors), matrix.cc, control.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "emulated/tile/ir.h"
#include "emulated/tile/operations.h"
#include "emulated/tile/plan.h"
#include "emulated/tile/ptx_text.h"

namespace gpurun::emulated::tile {

class KernelWriter {
 public:
  // Both are borrowed.
  KernelWriter(const Program& program, const Function& function, Plan plan)
      : program_(program), function_(function), plan_(std::move(plan)) {}

  // The kernel's PTX, after the variables that it needs. CUDA_ERROR_INVALID_IMAGE when Tile IR does
  // not allow an operation, CUDA_ERROR_INVALID_PTX when it is not translated.
  Result<std::string> write();

 private:
  using Registers = std::vector<std::string>;

  // A tensor in memory: its address in bytes, its sizes and strides in elements. Each is a register
  // or a number.
  struct Tensor {
    std::string base;
    Registers sizes;
    Registers strides;
  };
  // Where a terminator leads.
  struct Scope {
    Code code;                     // kIf, kFor, kLoop or kReduce.
    std::vector<ValueId> results;  // kIf, kLoop: written by yield and break.
    std::vector<ValueId> carried;  // kFor, kLoop: written by continue.
    std::string next;              // Where continue goes.
    std::string end;               // Where yield and break go.
    Registers sums;                // kReduce: written by yield.
  };

  const Type& type_of(ValueId value) const { return program_.type_of(function_, value); }
  Element element_of(ValueId value) const { return type_of(value).element; }
  // Stores the failure. Always false.
  bool fail(const std::string& what);
  bool not_translated(const std::string& what);
  void fail_as_too_long();
  bool require(bool condition, const char* what) { return condition || fail(what); }

  // kernel_writer.cc: whole kernels, and how values are read and written.
  void write_parameters();
  std::string declarations() const;
  void emit_block(const Block& block);
  void emit(const Operation& operation);
  bool emit_other(const Operation& operation);
  bool emit_tokens_and_ids(const Operation& operation);
  bool is_scalar(ValueId value) const;
  // The register of a value that the plan keeps in one. It is made at the first call.
  const std::string& register_of(ValueId value);
  void set_register(ValueId value, const std::string& from);
  // The address in local memory of an element. `index` is a .b32 register or a number.
  std::string local_address(ValueId value, const std::string& index);
  std::string load_element(ValueId value, const std::string& index);
  void store_element(ValueId value, const std::string& index, const std::string& from);
  // A load and a store of an element's bits. `space`: "local" or "global". `options`:
  // ".relaxed.sys" or "".
  std::string load_bits(const char* space, const std::string& options, Element element,
                        const std::string& address);
  void store_bits(const char* space, const std::string& options, Element element,
                  const std::string& address, const std::string& from);
  // Writes a loop that runs `body` for 0 to count - 1, with the count in a .b32 register.
  void repeat(std::uint64_t count, const std::function<void(const std::string&)>& body);
  // Writes loops that run `body` for each place of `shape`, the last dimension fastest. `body` gets
  // the coordinates and the place's number.
  void for_each(const std::vector<std::int64_t>& shape,
                const std::function<void(const Registers&, const std::string&)>& body);
  // The sum of indices times strides, as .b32.
  std::string linear(const Registers& indices, const std::vector<std::uint64_t>& strides);
  std::string sign_extended(Element element, const std::string& from);  // To .b64.

  // Element by element. `from`: the operands' bits. An empty result: the operation failed.
  void emit_elementwise(const Operation& operation);
  std::string compute(const Operation& operation, const Registers& from);
  std::string compute_integer(const Operation& operation, Element element, const Registers& from);
  std::string integer_compare(const Operation& operation, Element element, const Registers& from);
  std::string integer_divide(Element element, bool is_signed, std::uint64_t rounding,
                             const std::string& a, const std::string& b);
  std::string convert_integer(const Operation& operation, const Registers& from);
  std::string compute_float(const Operation& operation, Element element, const Registers& from);
  std::string float_compare(const Operation& operation, Element element, const Registers& from);
  std::string float_arithmetic(const Operation& operation, Element element, const Registers& from);
  std::string float_fma(const Operation& operation, Element element, const Registers& from);
  std::string float_min_max(const Operation& operation, Element element, const Registers& from);
  std::string float_root(const Operation& operation, Element element, const Registers& from);
  std::string float_function(const Operation& operation, Element element, const Registers& from);
  std::string exponential(const std::string& x);
  std::string convert_float(const Operation& operation, const Registers& from);
  std::string integer_to_float(const Operation& operation, const Registers& from);
  std::string float_to_integer(const Operation& operation, const Registers& from);
  std::string select(const Operation& operation, const Registers& from);
  std::string offset_pointer(const Operation& operation, const Registers& from);
  // An integer of fewer than 32 bits as one of 32 bits with the same value. Others are unchanged.
  std::string extended(Element element, bool is_signed, const std::string& from);
  // The low bits of a 32-bit result that belong to the element.
  std::string narrowed(Element element, const std::string& from);
  // Converts floating point of 32 bits or fewer to f32 and back, rounded to nearest. f64 is
  // unchanged.
  std::string to_single(Element element, const std::string& from);
  std::string from_single(Element element, const std::string& from);

  // shape.cc
  void emit_constant(const Operation& operation);
  void emit_iota(const Operation& operation);
  void emit_reshape(const Operation& operation);
  void emit_broadcast(const Operation& operation);
  void emit_permute(const Operation& operation);
  void emit_cat(const Operation& operation);
  // A value with the place of each element of a shape in it, by `strides` and `offset`.
  struct Strided {
    ValueId value;
    std::vector<std::uint64_t> strides;
    std::string offset;  // A .b32 register or a number.
  };
  void copy_strided(const std::vector<std::int64_t>& shape, const Strided& from, const Strided& to);
  void emit_extract(const Operation& operation);
  void emit_reduce(const Operation& operation);
  void reduce_one(const Operation& operation, std::uint64_t length,
                  const std::function<std::string(const std::string&)>& place);

  // memory.cc
  void emit_load(const Operation& operation);
  void emit_store(const Operation& operation);
  void emit_atomic(const Operation& operation);
  void emit_get_global(const Operation& operation);
  // Writes the fence before an access of that ordering, if it needs one. Returns the access's part
  // of its PTX name. end_access() writes the fence after it.
  std::string begin_access(std::uint64_t ordering);
  void end_access(std::uint64_t ordering);
  std::string atomic_access(const Operation& operation, Element element, const std::string& address,
                            const Registers& values);

  // view.cc
  void emit_make_tensor_view(const Operation& operation);
  void emit_make_partition_view(const Operation& operation);
  void emit_view_shape(const Operation& operation);
  void emit_view_access(const Operation& operation);
  std::string padding_of(const Type& view);
  using Place = std::function<void(const std::string& address, const std::string& outside,
                                   const std::string& place)>;
  void for_each_of_view(const Type& view, const Tensor& tensor, const Registers& starts,
                        const Place& body);

  // matrix.cc
  void emit_matrix_product(const Operation& operation);
  bool check_matrices(const Operation& operation, std::uint64_t* batches, std::uint64_t* rows,
                      std::uint64_t* columns, std::uint64_t* depth);
  std::string multiply_add(const Operation& operation, const std::string& a, const std::string& b,
                           const std::string& sum);

  // control.cc
  void emit_if(const Operation& operation);
  void emit_for(const Operation& operation);
  void emit_loop(const Operation& operation);
  void emit_terminator(const Operation& operation);
  void emit_assert(const Operation& operation);
  // Assigns all values at once, because a target may be another value's source.
  void assign(const std::vector<ValueId>& from, const std::vector<ValueId>& to);

  const Program& program_;
  const Function& function_;
  const Plan plan_;
  PtxText text_;
  std::string variables_;               // Declarations before the kernel.
  std::vector<std::string> registers_;  // By ValueId. Empty: not made yet.
  std::map<ValueId, Tensor> tensors_;   // Of views of both kinds.
  std::vector<Scope> scopes_;
  const Operation* current_ = nullptr;
  unsigned constants_ = 0;
  Status failure_;
};

}  // namespace gpurun::emulated::tile
