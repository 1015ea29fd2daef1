# Writes a header with one hash of everything that decides what code is generated. Objects in the
# cache are valid for the same hash only. Run by the build: cmake -DOUTPUT=... -DSOURCES=a;b -P
set(all "")
foreach(source ${SOURCES})
  file(SHA256 "${source}" digest)
  string(APPEND all "${digest}")
endforeach()
string(SHA256 version "${all}")
file(WRITE "${OUTPUT}" "// What the code generator was built from.
#pragma once
namespace gpurun::emulated {
inline constexpr char kGeneratorVersion[] = \"${version}\";
}
")
