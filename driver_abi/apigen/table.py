"""The rows of cuda_driver.toml."""

import toml_file
from cuda_types import split_declaration


class Parameter:
    def __init__(self, types, text):
        self.declaration, _, notes = (part.strip() for part in text.partition("|"))
        self.notes = notes.split()
        self.base, self.pointers, self.name, _ = split_declaration(self.declaration)
        types.canonical(self.base)


class Row:
    def __init__(self, types, symbol, description):
        self.symbol = symbol
        self.opcode = description["opcode"]
        self.parameters = [Parameter(types, p) for p in description["parameters"]]


def load(path, types):
    return [Row(types, symbol, d) for symbol, d in toml_file.load(path).items()]
