// Reader of operations by the table of operations.h.
#include "emulated/tile/function_reader.h"

#include <string>

namespace gpurun::emulated::tile {
namespace {

constexpr unsigned kAttributeDepthMax = 8;
constexpr std::uint64_t kListMax = 4096;

// BytecodeAttrOpcodes.td (operations.h has the repository).
enum AttributeTag : std::uint64_t {
  kIntegerTag = 1,
  kFloatTag = 2,
  kBoolTag = 3,
  kTypeTag = 4,
  kStringTag = 5,
  kArrayTag = 6,
  kElementsTag = 7,
  kDivByTag = 8,
  kSameElementsTag = 9,
  kDictionaryTag = 10,
  kHintsTag = 11,
  kBoundedTag = 12,
};

// Reads an integer or a floating-point number that follows its type.
bool read_scalar(const ImageTables& tables, Cursor& from, bool integer, std::uint64_t* bits) {
  TypeIndex index = 0;
  if (!tables.type_at(from, &index)) return false;
  const Type& type = tables.types()[index];
  if (type.kind != Type::Kind::kElement || is_integer(type.element) != integer ||
      type.element == Element::kPointer) {
    return from.fail("a number of another kind than its type");
  }
  const unsigned width = bits_of_element(type.element);
  if (width == 1 || (!integer && width == 8)) {
    *bits = from.byte();
  } else {
    *bits = integer ? from.number() : from.signed_number();
  }
  if (width < 64) *bits &= (std::uint64_t{1} << width) - 1;
  return from.ok();
}

bool skip_dictionary(const ImageTables& tables, Cursor& from, unsigned depth) {
  const std::uint64_t count = from.count(2, kListMax);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string_view key;
    if (!tables.string_at(from, &key) || !skip_attribute(tables, from, depth)) return false;
  }
  return from.ok();
}

// Skips flags and the numbers, up to two, that they announce.
void skip_pair(Cursor& from) {
  const std::uint8_t flags = from.byte();
  if ((flags & 1) != 0) from.signed_number();
  if ((flags & 2) != 0) from.signed_number();
}

}  // namespace

bool skip_attribute(const ImageTables& tables, Cursor& from, unsigned depth) {
  if (depth == kAttributeDepthMax) return from.fail("attributes too deep in each other");
  const std::uint64_t tag = from.number();
  std::uint64_t bits = 0;
  TypeIndex type = 0;
  std::string_view text;
  ByteView bytes;
  switch (tag) {
    case kIntegerTag:
      return read_scalar(tables, from, true, &bits);
    case kFloatTag:
      return read_scalar(tables, from, false, &bits);
    case kBoolTag:
      from.byte();
      return from.ok();
    case kTypeTag:
      return tables.type_at(from, &type);
    case kStringTag:
      return tables.string_at(from, &text);
    case kArrayTag: {
      const std::uint64_t count = from.count(1, kListMax);
      for (std::uint64_t i = 0; i < count && from.ok(); ++i) {
        skip_attribute(tables, from, depth + 1);
      }
      return from.ok();
    }
    case kElementsTag:
      return tables.tile_type_at(from, &type) &&
             tables.constant_at(from, tables.types()[type], &bytes);
    case kDivByTag:
      from.number();
      skip_pair(from);
      return from.ok();
    case kSameElementsTag:
      from.take(8 * from.count(8, kListMax));
      return from.ok();
    case kDictionaryTag:
    case kHintsTag:
      return skip_dictionary(tables, from, depth + 1);
    case kBoundedTag:
      skip_pair(from);
      return from.ok();
    default:
      return from.ok() && from.fail("a kind of attribute that there is not");
  }
}

Status FunctionReader::read(const Type& signature, ByteView body) {
  Cursor from(body, "kernel " + function_.name);
  for (const TypeIndex parameter : signature.parameters) {
    if (tables_.types()[parameter].elements() != 1) from.fail("a parameter of many elements");
    if (!new_value(from, parameter, &function_.parameters)) return from.status();
  }
  visible_ = function_.parameters;
  function_.body.arguments = function_.parameters;
  while (from.left() > 0) {
    function_.body.operations.emplace_back();
    if (!read_operation(from, 0, &function_.body.operations.back())) break;
  }
  if (from.ok() && function_.body.operations.empty()) from.fail("no operation");
  return from.ok() ? Status() : from.status();
}

bool FunctionReader::new_value(Cursor& from, TypeIndex type, std::vector<ValueId>* values) {
  if (function_.value_types.size() == kValuesMax) return from.fail("too many values");
  values->push_back(static_cast<ValueId>(function_.value_types.size()));
  function_.value_types.push_back(type);
  return from.ok();
}

bool FunctionReader::read_values(Cursor& from, std::uint64_t count, std::vector<ValueId>* values) {
  for (std::uint64_t i = 0; i < count && from.ok(); ++i) {
    const std::uint64_t index = from.number();
    if (!from.ok()) return false;
    if (index >= visible_.size()) return from.fail("there is no value " + std::to_string(index));
    values->push_back(visible_[index]);
  }
  return from.ok();
}

bool FunctionReader::read_operation(Cursor& from, unsigned depth, Operation* operation) {
  if (++operations_ > kOperationsMax) return from.fail("too many operations");
  operation->at = static_cast<std::uint32_t>(from.at());
  const std::uint64_t code = from.number();
  if (!from.ok()) return false;
  operation->code = static_cast<std::uint32_t>(std::min<std::uint64_t>(code, ~0u));
  const OperationForm* form = form_of(operation->code);
  if (form == nullptr) {
    const char* name = operation_name(operation->code);
    if (name == nullptr) return from.fail("there is no operation " + std::to_string(code));
    return from.fail(std::string("the operation ") + name + " is not translated", kInvalidPtx);
  }
  const bool many =
      form->results < 0 || std::string_view(form->operands).find('*') != std::string::npos;
  const std::uint64_t results =
      many ? from.count(1, kValuesMax) : static_cast<std::uint64_t>(form->results);
  if (form->results >= 0 && results != static_cast<std::uint64_t>(form->results)) {
    return from.fail("another number of results");
  }
  std::vector<TypeIndex> types(from.ok() ? results : 0);
  for (TypeIndex& type : types) {
    if (!tables_.type_at(from, &type)) return false;
  }
  if (!read_attributes(from, *form, operation)) return false;
  if (operation->code == kConstant &&
      !tables_.constant_at(from, tables_.types()[types.front()], &operation->constant)) {
    return false;
  }
  if (!read_operands(from, *form, operation)) return false;
  if (form->regions != 0 && from.number() != form->regions) {
    return from.fail("another number of regions");
  }
  for (unsigned i = 0; i < form->regions; ++i) {
    operation->regions.emplace_back();
    if (!read_block(from, depth + 1, &operation->regions.back())) return false;
  }
  for (const TypeIndex type : types) {
    if (!new_value(from, type, &operation->results)) return false;
  }
  visible_.insert(visible_.end(), operation->results.begin(), operation->results.end());
  return from.ok();
}

// Reads a region: no block or one.
bool FunctionReader::read_block(Cursor& from, unsigned depth, Block* block) {
  if (depth > kRegionDepthMax) return from.fail("regions too deep in each other");
  if (from.number(1) == 0) return from.ok();
  const std::size_t before = visible_.size();
  const std::uint64_t arguments = from.count(1, kValuesMax);
  for (std::uint64_t i = 0; i < arguments; ++i) {
    TypeIndex type = 0;
    if (!tables_.type_at(from, &type) || !new_value(from, type, &block->arguments)) return false;
  }
  visible_.insert(visible_.end(), block->arguments.begin(), block->arguments.end());
  const std::uint64_t operations = from.count(1, kOperationsMax);
  for (std::uint64_t i = 0; i < operations; ++i) {
    block->operations.emplace_back();
    if (!read_operation(from, depth, &block->operations.back())) return false;
  }
  if (from.ok() && operations == 0) return from.fail("a block without operations");
  visible_.resize(before);
  return from.ok();
}

bool FunctionReader::read_attributes(Cursor& from, const OperationForm& form,
                                     Operation* operation) {
  const std::string_view attributes = form.attributes;
  const std::string_view operands = form.operands;
  bool flagged = operands.find('?') != std::string_view::npos;
  for (std::size_t i = 1; i < attributes.size(); ++i) {
    if (attributes[i] != '?') continue;
    const char since = i + 1 < attributes.size() ? attributes[i + 1] : '1';
    flagged |= since < '1' || since > '9' || tables_.minor() >= static_cast<unsigned>(since - '0');
  }
  if (flagged) operation->flags = from.number();
  unsigned bit = 0;
  for (std::size_t i = 0; i < attributes.size();) {
    const char kind = attributes[i++];
    const bool optional = i < attributes.size() && attributes[i] == '?';
    if (optional) ++i;
    bool there = true;
    if (i < attributes.size() && attributes[i] >= '1' && attributes[i] <= '9') {
      there = tables_.minor() >= static_cast<unsigned>(attributes[i++] - '0');
    }
    if (optional) there = is_there(*operation, bit++);
    if (there) {
      if (!read_attribute(from, kind, operation)) return false;
    } else if (kind == 'e') {
      operation->numbers.push_back(0);
    }
  }
  return from.ok();
}

bool FunctionReader::read_attribute(Cursor& from, char kind, Operation* operation) {
  std::string_view text;
  switch (kind) {
    case 'e':
      operation->numbers.push_back(from.number(0xffff));
      return from.ok();
    case 'i':
    case 'I':
      operation->numbers.push_back(from.number(0xffffffff));
      return from.ok();
    case 'u':
    case 'C':  // Needs the result's type: read_operation().
      return true;
    case 'h': {
      const std::uint64_t count = from.count(2, kListMax);
      for (std::uint64_t i = 0; i < count; ++i) {
        if (!tables_.string_at(from, &text) || !skip_attribute(tables_, from, 1)) return false;
      }
      return from.ok();
    }
    case 'L': {
      const std::uint64_t count = from.count(4, kRankMax);
      for (std::uint64_t i = 0; i < count; ++i) {
        operation->list.push_back(from.fixed<std::int32_t>());
      }
      return from.ok();
    }
    case 'P':
      return skip_attribute(tables_, from, 0);
    case 's':
      if (!tables_.string_at(from, &text)) return false;
      operation->text = std::string(text);
      return true;
    default:
      return read_identities(from, operation);
  }
}

bool FunctionReader::read_identities(Cursor& from, Operation* operation) {
  const std::uint64_t count = from.count(2, kListMax);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t tag = from.number();
    std::uint64_t bits = 0;
    if (tag == kBoolTag) {
      bits = from.byte() & 1u;
    } else if (tag != kIntegerTag && tag != kFloatTag) {
      return from.fail("an identity that is no number");
    } else if (!read_scalar(tables_, from, tag == kIntegerTag, &bits)) {
      return false;
    }
    operation->identities.push_back(bits);
  }
  return from.ok();
}

bool FunctionReader::read_operands(Cursor& from, const OperationForm& form, Operation* operation) {
  const std::string_view declared = form.operands;
  const std::size_t first_many = declared.find('*');
  const bool one_by_one = declared.find('?') != std::string_view::npos ||
                          declared.find('*', first_many + 1) != std::string_view::npos;
  if (first_many != std::string_view::npos && !one_by_one) {
    const std::uint64_t count = from.count(1, kValuesMax);
    if (count < declared.size() - 1) return from.fail("too few operands");
    return read_values(from, count, &operation->operands);
  }
  unsigned bit = 0;
  for (std::size_t i = 0; form.attributes[i] != 0; ++i) bit += form.attributes[i] == '?' ? 1 : 0;
  for (const char kind : declared) {
    std::uint64_t count = 1;
    if (kind == '?') count = is_there(*operation, bit++) ? 1 : 0;
    if (kind == '*') count = from.count(1, kValuesMax);
    if (!read_values(from, count, &operation->operands)) return false;
    if (kind != 'o') operation->counts.push_back(static_cast<std::uint32_t>(count));
  }
  return from.ok();
}

}  // namespace gpurun::emulated::tile
