"""CUDA's types as cuda_types.toml describes them: questions about them, and their C declarations."""

import re

import toml_file

BUILT_IN = {
    "void", "char", "signed char", "unsigned char", "short", "unsigned short", "int",
    "unsigned int", "long long", "unsigned long long", "float", "size_t", "uint32_t", "uint64_t",
}
SIGNED = {"char", "signed char", "short", "int", "long long"}


class TypeError_(Exception):
    """A type that cuda_types.toml does not explain."""


class CudaTypes:
    def __init__(self, path):
        data = toml_file.load(path)
        self.handles = data["handle"]
        self.aliases = data["alias"]
        self.callbacks = data["callback"]
        self.constants = data["constant"]
        self.enums = data["enum"]
        self.records = {}  # name -> (kind, description)
        for kind in ("struct", "union"):
            for name, description in data.get(kind, {}).items():
                self.records[name] = (kind, description)

    # Follows typedef names to the last one that means something by itself.
    def canonical(self, name):
        while name in self.aliases:
            name = self.aliases[name]
        if name not in BUILT_IN and not any(
                name in known
                for known in (self.handles, self.callbacks, self.enums, self.records)):
            raise TypeError_("unknown type '%s'" % name)
        return name

    def kind(self, name):
        """One of void, integer, float, enum, handle, callback, record."""
        name = self.canonical(name)
        if name == "void":
            return "void"
        if name == "float":
            return "float"
        if name in self.enums:
            return "enum"
        if name in self.handles:
            return "handle"
        if name in self.callbacks:
            return "callback"
        if name in self.records:
            return "record"
        return "integer"

    def is_signed(self, name):
        return self.canonical(name) in SIGNED

    # True when objects of that type can travel as bytes: no pointer, handle or callback inside.
    def is_flat(self, name):
        kind = self.kind(name)
        if kind in ("integer", "float", "enum"):
            return True
        if kind != "record":
            return False
        description = self.records[self.canonical(name)][1]
        ignored = description.get("_ignored", [])
        return all(self._field_is_flat(f, ignored) for f in description["fields"])

    def _field_is_flat(self, field, ignored):
        if isinstance(field, dict):
            nested = field.get("struct", field.get("union"))
            return all(self._field_is_flat(f, ignored) for f in nested)
        base, pointers, name, _ = split_declaration(field)
        return name in ignored or (pointers == 0 and self.is_flat(base))

    def names_used(self, field):
        if isinstance(field, dict):
            return {n for f in field.get("struct", field.get("union")) for n in
                    self.names_used(f)}
        return {split_declaration(field)[0]}

    # Everything about a type that the two ends of a wire must agree on.
    def facts(self, name):
        name = self.canonical(name)
        if name in self.enums:
            return "enum"
        if name in self.records:
            kind, description = self.records[name]
            return kind + self._field_facts(description["fields"], description.get("_align", 0))
        return name

    def _field_facts(self, fields, align):
        parts = []
        for field in fields:
            if isinstance(field, dict):
                kind = "struct" if "struct" in field else "union"
                parts.append(kind + self._field_facts(field[kind], 0) + field.get("name", ""))
            else:
                base, pointers, _, dimensions = split_declaration(field)
                parts.append(self.facts(base) + "*" * pointers + dimensions)
        return "{%s}%d" % (";".join(parts), align)

    def ordered(self):
        """Names of aliases, callbacks, enums and records, each after what it needs."""
        done, order = set(BUILT_IN) | set(self.handles), []
        needs = {}
        for name in self.enums:
            needs[name] = set()
        for name, target in self.aliases.items():
            needs[name] = {target}
        for name, prototype in self.callbacks.items():
            result, parameters = split_callback(prototype)
            needs[name] = {result} | {split_declaration(p)[0] for p in parameters}
        for name, (_, description) in self.records.items():
            needs[name] = set().union(*(self.names_used(f) for f in description["fields"]))

        def visit(name, path):
            if name in done:
                return
            if name in path:
                raise TypeError_("type '%s' contains itself" % name)
            if name not in needs:
                raise TypeError_("unknown type '%s'" % name)
            for need in sorted(needs[name]):
                visit(need, path | {name})
            done.add(name)
            order.append(name)

        for name in needs:
            visit(name, frozenset())
        return order


_DECLARATION = re.compile(
    r"^(?P<base>[A-Za-z_][A-Za-z_0-9 ]*?)\s*(?P<pointers>(?:\*\s*(?:const\s*)?)*)"
    r"(?P<name>\b[A-Za-z_][A-Za-z_0-9]*)(?P<dimensions>(?:\[\d+\])*)$")


def split_declaration(text):
    """'const char* names[2]' -> ('char', 1, 'names', '[2]')."""
    match = _DECLARATION.match(text.strip())
    if not match:
        raise TypeError_("cannot read the declaration '%s'" % text)
    words = [w for w in match.group("base").split() if w not in ("const", "struct", "enum",
                                                                 "union")]
    return (" ".join(words), match.group("pointers").count("*"), match.group("name"),
            match.group("dimensions"))


def split_callback(prototype):
    match = re.match(r"^(.*?)\s*\((.*)\)$", prototype)
    return match.group(1), [p.strip() for p in match.group(2).split(",")]


def render_fields(fields, indent):
    lines = []
    pad = "  " * indent
    for field in fields:
        if isinstance(field, dict):
            kind = "struct" if "struct" in field else "union"
            tag = " " + field["tag"] if "tag" in field else ""
            name = " " + field["name"] if "name" in field else ""
            lines.append("%s%s%s {" % (pad, kind, tag))
            lines += render_fields(field[kind], indent + 1)
            lines.append("%s}%s;" % (pad, name))
        else:
            lines.append("%s%s;" % (pad, field))
    return lines


def render_type(types, name):
    if name in types.aliases:
        return ["typedef %s %s;" % (types.aliases[name], name)]
    if name in types.callbacks:
        result, parameters = split_callback(types.callbacks[name])
        return ["typedef %s (*%s)(%s);" % (result, name, ", ".join(parameters))]
    if name in types.enums:
        values = {k: v for k, v in types.enums[name].items() if k != "_tag"}
        return (["typedef enum %s {" % types.enums[name]["_tag"]] +
                ["  %s = %s," % (k, v if v <= 0x7fffffff else hex(v)) for k, v in values.items()] +
                ["} %s;" % name])
    kind, description = types.records[name]
    align = description.get("_align")
    attribute = " __attribute__((aligned(%d)))" % align if align else ""
    return (["typedef %s%s %s {" % (kind, attribute, description["_tag"])] +
            render_fields(description["fields"], 1) + ["} %s;" % name])
