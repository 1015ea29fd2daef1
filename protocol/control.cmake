# Control frames and their proofs: protocol/control/control.h.
capnp_generate_cpp(session_sources session_headers "${CMAKE_CURRENT_SOURCE_DIR}/control/session.capnp")
add_library(gpurun_protocol_control STATIC control/control.cc control/features.cc control/local_address.cc auth/proof.cc control/rows_agreement.cc auth/run_secret.cc auth/secret_text.cc control/session_identity.cc auth/token.cc ${session_sources})
set_source_files_properties(${session_sources} PROPERTIES COMPILE_OPTIONS "-w")
target_link_libraries(gpurun_protocol_control PUBLIC gpurun_base PRIVATE CapnProto::capnp gpurun_options)
# Shared by an operator's tools and gpurund. The client library does not include it.
add_library(gpurun_protocol_token_file STATIC auth/token_file.cc auth/token_file_disk.cc)
target_link_libraries(gpurun_protocol_token_file PUBLIC gpurun_protocol_control PRIVATE gpurun_options)
