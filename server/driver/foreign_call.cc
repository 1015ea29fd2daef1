// ForeignCall: maps a row's parameters to libffi's types.
#include "server/driver/foreign_call.h"

#include <string>

namespace gpurun::server {

using driver_abi::Parameter;
using driver_abi::ScalarClass;
using driver_abi::Shape;

ffi_type* ForeignCall::aggregate(std::size_t bytes) {
  auto made = std::make_unique<Aggregate>();
  // Built from the largest integer that divides the size, so that the alignment fits as well.
  ffi_type* element = &ffi_type_uint8;
  std::size_t each = 1;
  if (bytes % 8 == 0) {
    element = &ffi_type_uint64;
    each = 8;
  } else if (bytes % 4 == 0) {
    element = &ffi_type_uint32;
    each = 4;
  } else if (bytes % 2 == 0) {
    element = &ffi_type_uint16;
    each = 2;
  }
  made->elements.assign(bytes / each, element);
  made->elements.push_back(nullptr);
  made->type.type = FFI_TYPE_STRUCT;
  made->type.elements = made->elements.data();
  aggregates_.push_back(std::move(made));
  return &aggregates_.back()->type;
}

ffi_type* ForeignCall::type_of(const Parameter& parameter) {
  if (parameter.shape == Shape::kStruct) {
    return parameter.element_bytes == 0 ? nullptr : aggregate(parameter.element_bytes);
  }
  if (parameter.shape != Shape::kScalar) {
    return parameter.shape == Shape::kOpaque ? nullptr : &ffi_type_pointer;
  }
  if (parameter.scalar_class == ScalarClass::kPointerSized) return &ffi_type_uint64;
  if (parameter.scalar_class == ScalarClass::kFloat) {
    if (parameter.element_bytes == 4) return &ffi_type_float;
    return parameter.element_bytes == 8 ? &ffi_type_double : nullptr;
  }
  const bool is_signed = parameter.scalar_class == ScalarClass::kSigned;
  switch (parameter.element_bytes) {
    case 1:
      return is_signed ? &ffi_type_sint8 : &ffi_type_uint8;
    case 2:
      return is_signed ? &ffi_type_sint16 : &ffi_type_uint16;
    case 4:
      return is_signed ? &ffi_type_sint32 : &ffi_type_uint32;
    case 8:
      return is_signed ? &ffi_type_sint64 : &ffi_type_uint64;
    default:
      return nullptr;
  }
}

Result<std::unique_ptr<ForeignCall>> ForeignCall::prepare(const driver_abi::Row& row) {
  if (row.parameters.size() > protocol::kParametersMax) {
    return Status(Code::kInternal, std::string(row.symbol) + ": too many parameters");
  }
  std::unique_ptr<ForeignCall> call(new ForeignCall);
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    call->types_[i] = call->type_of(row.parameters[i]);
    if (call->types_[i] == nullptr) {
      return Status(Code::kInternal,
                    std::string(row.symbol) + ": " + row.parameters[i].name + " needs custom code");
    }
  }
  const auto count = static_cast<unsigned>(row.parameters.size());
  if (ffi_prep_cif(&call->cif_, FFI_DEFAULT_ABI, count, &ffi_type_sint32, call->types_.data()) !=
      FFI_OK) {
    return Status(Code::kInternal, std::string(row.symbol) + ": libffi refuses the signature");
  }
  return call;
}

int ForeignCall::invoke(void* function, void** arguments) const {
  ffi_arg result = 0;
  // libffi does not write to the description. Its interface only lacks the const.
  ffi_call(const_cast<ffi_cif*>(&cif_), FFI_FN(function), &result, arguments);
  return static_cast<int>(result);
}

}  // namespace gpurun::server
