// Object builder: builds ELF objects with sections of fat binaries, and archives of them, from the
// formats' descriptions and not from the reader's code.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/images/fatbin_builder.h"

namespace gpurun::test {

struct SectionSpec {
  std::string name;
  std::string content;
};

// A 64-bit object: its header, the sections' contents, their names, and the headers. Section 0 is
// empty as always. The last section holds the names.
inline std::string build_object(const std::vector<SectionSpec>& sections) {
  std::string out(64, '\0');
  std::string names(1, '\0');
  std::string headers(64, '\0');
  const auto add = [&](const std::string& name, std::size_t offset, std::size_t bytes) {
    std::string header(64, '\0');
    put(&header, 0, names.size(), 4);
    put(&header, 4, 1, 4);
    put(&header, 24, offset, 8);
    put(&header, 32, bytes, 8);
    headers += header;
    names += name + '\0';
  };
  for (const SectionSpec& section : sections) {
    add(section.name, out.size(), section.content.size());
    out += section.content;
    out.resize((out.size() + 7) / 8 * 8);
  }
  const std::string last = ".shstrtab";
  add(last, out.size(), names.size() + last.size() + 1);
  out += names;
  out.resize((out.size() + 7) / 8 * 8);
  const std::size_t table = out.size();
  out += headers;
  out.replace(0, 7, std::string("\177ELF\2\1\1", 7));
  put(&out, 16, 1, 2);   // ET_REL
  put(&out, 18, 62, 2);  // EM_X86_64
  put(&out, 40, table, 8);
  put(&out, 58, 64, 2);
  put(&out, 60, headers.size() / 64, 2);
  put(&out, 62, headers.size() / 64 - 1, 2);
  return out;
}

inline std::string build_archive(const std::vector<std::string>& members) {
  std::string out = "!<arch>\n";
  for (const std::string& member : members) {
    char header[61] = "";
    std::snprintf(header, sizeof header, "%-16s%-12d%-6d%-6d%-8o%-10zu`\n", "member.o/", 0, 0, 0,
                  0644U, member.size());
    out += header + member;
    if (out.size() % 2 != 0) out += '\n';
  }
  return out;
}

}  // namespace gpurun::test
