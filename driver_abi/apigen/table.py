"""The rows of cuda_driver.toml, read and resolved. check.py refuses impossible rows."""

import hashlib
import re

import toml_file
from cuda_types import TypeError_, split_declaration

DIRECTIONS = ("in", "out", "inout")
FLAGS = ("address", "bytes", "nullable", "opaque")
SCALAR_BYTES = 8
# The HandleKind of row.h for each handle type.
HANDLE_KINDS = {
    "CUcontext": "kContext", "CUmodule": "kModule", "CUfunction": "kFunction",
    "CUkernel": "kKernel", "CUlibrary": "kLibrary", "CUstream": "kStream", "CUevent": "kEvent",
    "CUarray": "kArray", "CUmipmappedArray": "kMipmappedArray", "CUtexref": "kTextureReference",
    "CUsurfref": "kSurfaceReference", "CUgraph": "kGraph", "CUgraphNode": "kGraphNode",
    "CUgraphExec": "kGraphExec", "CUmemoryPool": "kMemoryPool",
    "CUmemGenericAllocationHandle": "kAllocation", "CUlinkState": "kLinkState",
    "CUexternalMemory": "kExternalMemory", "CUexternalSemaphore": "kExternalSemaphore",
    "CUgraphicsResource": "kGraphicsResource", "CUuserObject": "kUserObject",
    "CUgreenCtx": "kGreenContext", "CUdevResourceDesc": "kDevResourceDescriptor",
    "CUasyncCallbackHandle": "kAsyncCallback", "CUlogsCallbackHandle": "kLogsCallback",
    "CUtexObject": "kTextureObject", "CUsurfObject": "kSurfaceObject",
    "CUgraphConditionalHandle": "kGraphConditional",
}
# The server's own values: they travel inside kernel parameters, so the client cannot mint them.
SERVER_VALUES = ("kTextureObject", "kSurfaceObject", "kGraphConditional")


class RowError(Exception):
    """A row that cannot be right. The message names it."""


class Parameter:
    def __init__(self, types, text, where):
        self.declaration, _, notes = (part.strip() for part in text.partition("|"))
        self.base, self.pointers, self.name, _ = split_declaration(self.declaration)
        self.type = self.declaration[:-len(self.name)].strip()
        self.const = "const" in self.type.split()
        self.direction = "in"
        self.count = self.buffer = None
        self.count_offset = self.fixed_count = 0
        self.nullable = self.opaque = self.address = self.bytes = False
        self.pointee = self.base
        self.notes = notes.split()
        types.canonical(self.base)
        for note in self.notes:
            self._read_note(note, where)
        self.handle = HANDLE_KINDS.get(self.base, "kNone")
        self.shape = self._shape(types)
        if self.handle == "kStream" and self.shape == "kHandle":
            self.nullable = True

    def _read_note(self, note, where):
        name, _, value = note.partition("=")
        if note in DIRECTIONS:
            self.direction = note
        elif note in FLAGS:
            setattr(self, note, True)
        elif name == "count" and value.isdigit():
            self.fixed_count = int(value)
        elif name == "count":
            match = re.match(r"^(\w+?)(-[12])?$", value)
            if not match:
                raise RowError("%s: '%s' counts nothing" % (where, note))
            self.count, self.count_offset = match.group(1), int(match.group(2) or 0)
        elif name == "buffer":
            self.buffer = value
        elif name == "as":
            self.pointee = value.replace("_", " ") if " " in value.replace(
                "_", " ") and value not in HANDLE_KINDS and not value.startswith(
                    ("CU", "cu")) else value
        else:
            raise RowError("%s: parameter %s has the unknown note '%s'" % (where, self.name, note))

    def _shape(self, types):
        if self.opaque:
            return "kOpaque"
        if self.pointers == 0 or self.address:
            if self.handle != "kNone":
                return "kHandle"
            kind = types.kind(self.base)
            return {"record": "kStruct", "callback": "kOpaque"}.get(kind, "kScalar")
        if self.pointers > 1:
            return "kOpaque"
        if self.buffer:
            return "kStringBuffer"
        counted = self.count is not None or self.fixed_count
        if self.handle != "kNone":
            return "kHandleArray" if counted else "kHandlePointee"
        if self.base == "char" and self.const and not counted:
            return "kString"
        if self.pointee == "void" and not counted:
            return "kOpaque"
        return "kArray" if counted else "kPointee"

    def scalar_class(self, types):
        if self.pointers:
            return "kPointerSized"
        kind = types.kind(self.base)
        if kind == "float":
            return "kFloat"
        if kind == "enum":
            return "kUnsigned"
        return "kSigned" if types.is_signed(self.base) else "kUnsigned"

    # The C type of one object, for sizeof.
    def element_type(self):
        if self.shape in ("kHandle", "kHandlePointee", "kHandleArray"):
            return self.base
        if self.shape == "kOpaque" or (self.pointers and self.address):
            return "void*"
        if self.shape in ("kString", "kStringBuffer") or self.pointee == "void":
            return "char"
        return self.pointee

    @property
    def is_output(self):
        return self.direction != "in"


class Row:
    KEYS = {"opcode", "key", "alias", "parameters", "completion", "implementation", "stream",
            "destroys", "context_of", "implicit_sync", "remembered", "null_error", "reason"}

    def __init__(self, symbol, description):
        unknown = set(description) - self.KEYS
        if unknown:
            raise RowError("%s: unknown %s" % (symbol, ", ".join(sorted(unknown))))
        match = re.match(r"^(\w+)@(\d+)(?:/(ptds|ptsz))?$", description.get("key", ""))
        if not match:
            raise RowError("%s: its key is not BASE@VERSION or BASE@VERSION/ptsz" % symbol)
        self.symbol = symbol
        self.opcode = description.get("opcode")
        self.base, self.version, self.variant = match.group(1), int(match.group(2)), match.group(3)
        self.alias = description.get("alias")
        self.description = description
        self.target = self  # The row that an alias stands for.
        self.emulated = False
        self.not_yet = False  # A custom row whose hand-written function is still missing.

    def resolve(self, types):
        get = self.description.get
        if "parameters" not in self.description:
            raise RowError("%s: neither parameters nor alias" % self.symbol)
        self.parameters = [Parameter(types, p, self.symbol) for p in get("parameters")]
        self.completion = get("completion")
        if self.completion == "refused":  # No code packs them, so the table does not describe them.
            for parameter in self.parameters:
                if parameter.pointers:
                    parameter.shape = "kOpaque"
        self.implementation = get("implementation", "generated")
        self.stream = get("stream")
        self.destroys = get("destroys")
        self.context_of = get("context_of")
        self.implicit_sync = get("implicit_sync", False)
        self.remembered = get("remembered", False)
        self.null_error = get("null_error", 1)
        self.reason = get("reason")

    def resolve_alias(self, rows):
        target = rows.get(self.alias)
        extra = set(self.description) - {"opcode", "key", "alias"}
        if target is None or target.alias:
            raise RowError("%s: is an alias of %s, which is no row of its own" %
                           (self.symbol, self.alias))
        if extra:
            raise RowError("%s: an alias cannot say %s" % (self.symbol, ", ".join(sorted(extra))))
        self.target = target
        for name in ("parameters", "completion", "implementation", "stream", "destroys",
                     "context_of", "implicit_sync", "remembered", "null_error", "reason"):
            setattr(self, name, getattr(target, name))

    def index_of(self, name):
        for index, parameter in enumerate(self.parameters):
            if parameter.name == name:
                return index
        return None

    # What context_of names: the kind of handle ("kNone": an address) and its C expression.
    def context_source(self):
        name, _, member = self.context_of.partition("->")
        parameter = self.parameters[self.index_of(name)]
        if member:
            return "kStream", "%s == nullptr ? nullptr : %s" % (name, self.context_of)
        return parameter.handle, name

    # 64 bits over everything that client and server must read alike.
    def hash(self, types):
        facts = [self.symbol, self.target.symbol, self.completion, self.implementation,
                 str(self.stream), str(self.destroys), str(self.null_error)]
        for p in self.parameters:
            facts += [p.type, types.facts(p.base), p.direction, p.shape, str(p.count), p.pointee,
                      str(p.count_offset), str(p.fixed_count), str(p.buffer), str(p.nullable)]
            if p.handle == "kGraphNode" and p.shape == "kHandleArray" and p.direction == "out":
                facts.append("spares")  # protocol/calls/call.h, holds_spares().
        return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def load(path, types, emulated=frozenset(), not_yet=frozenset()):
    rows = {symbol: Row(symbol, d) for symbol, d in toml_file.load(path).items()}
    try:
        for row in rows.values():
            if not row.alias:
                row.resolve(types)
    except TypeError_ as error:
        raise RowError("%s: %s" % (row.symbol, error)) from error
    for row in rows.values():
        if row.alias:
            row.resolve_alias(rows)
    for name in emulated:
        if name not in rows:
            raise RowError("implemented.list names %s, which is no row" % name)
    for name in not_yet:
        row = rows.get(name)
        if row is None or row.target is not row or row.implementation != "custom":
            raise RowError("not_yet.list names %s, which is no custom row" % name)
        row.not_yet = True
    for row in rows.values():
        row.emulated = row.target.symbol in emulated or row.symbol in emulated
    return list(rows.values())
