# Control frames and their proofs: protocol/control/control.h.
capnp_generate_cpp(session_sources session_headers "${CMAKE_CURRENT_SOURCE_DIR}/control/session.capnp")
add_library(gpurun_protocol_control STATIC control/control.cc control/features.cc control/local_address.cc auth/proof.cc control/rows_agreement.cc auth/run_secret.cc auth/secret_text.cc control/session_identity.cc auth/token.cc control/version.cc ${session_sources})
set_source_files_properties(${session_sources} PROPERTIES COMPILE_OPTIONS "-w")
target_link_libraries(gpurun_protocol_control PUBLIC gpurun_base PRIVATE CapnProto::capnp gpurun_options)
# An object of its own, which programs of another version replace (version.h).
set_source_files_properties(control/version.cc PROPERTIES COMPILE_DEFINITIONS "GPURUN_RELEASE=\"${PROJECT_VERSION}\"")
gpurun_compile_alone(control/version.cc)
# What programs print of their version. Each build asks git for the commit, and compiles one small
# file when the commit has changed. Only programs link it, so that libraries stay as they are.
set(commit_source "${CMAKE_BINARY_DIR}/generated/protocol/control/commit.cc")
add_custom_target(gpurun_commit
  COMMAND ${CMAKE_COMMAND} "-DSOURCE=${CMAKE_SOURCE_DIR}" "-DOUTPUT=${commit_source}"
          -P ${CMAKE_SOURCE_DIR}/cmake/commit.cmake
  BYPRODUCTS "${commit_source}" VERBATIM)
add_library(gpurun_protocol_version_line STATIC control/version_line.cc "${commit_source}")
add_dependencies(gpurun_protocol_version_line gpurun_commit)
target_link_libraries(gpurun_protocol_version_line PUBLIC gpurun_protocol_control PRIVATE gpurun_options)
gpurun_compile_alone("${commit_source}")
# Shared by an operator's tools and gpurund. The client library does not include it.
add_library(gpurun_protocol_token_file STATIC auth/token_file.cc auth/token_file_disk.cc)
target_link_libraries(gpurun_protocol_token_file PUBLIC gpurun_protocol_control PRIVATE gpurun_options)
