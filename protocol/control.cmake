# Control frames and their proofs: protocol/control.h.
capnp_generate_cpp(session_sources session_headers "${CMAKE_CURRENT_SOURCE_DIR}/session.capnp")
add_library(gpurun_protocol_control STATIC control.cc features.cc local_address.cc proof.cc rows_agreement.cc run_secret.cc secret_text.cc session_identity.cc token.cc ${session_sources})
set_source_files_properties(${session_sources} PROPERTIES COMPILE_OPTIONS "-w")
target_link_libraries(gpurun_protocol_control PUBLIC gpurun_base PRIVATE CapnProto::capnp gpurun_options)
# Shared by an operator's tools and gpurund. The client library does not include it.
add_library(gpurun_protocol_token_file STATIC token_file.cc token_file_disk.cc)
target_link_libraries(gpurun_protocol_token_file PUBLIC gpurun_protocol_control PRIVATE gpurun_options)
