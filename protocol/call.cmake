# The generic codec of generated rows: protocol/call.h.
set(CAPNPC_SRC_PREFIX "${CMAKE_SOURCE_DIR}")
set(CAPNPC_OUTPUT_DIR "${CMAKE_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${CAPNPC_OUTPUT_DIR}")
capnp_generate_cpp(call_sources call_headers "${CMAKE_CURRENT_SOURCE_DIR}/call.capnp"
                   "${CMAKE_CURRENT_SOURCE_DIR}/snapshot.capnp")
add_library(gpurun_protocol_call STATIC call.cc ${call_sources})
set_source_files_properties(${call_sources} PROPERTIES COMPILE_OPTIONS "-w")
target_link_libraries(gpurun_protocol_call PUBLIC gpurun_base PUBLIC CapnProto::capnp PRIVATE gpurun_options)
# Code images and kernels: protocol/module_calls.h, protocol/image_bundle.h.
capnp_generate_cpp(module_sources module_headers "${CMAKE_CURRENT_SOURCE_DIR}/module.capnp")
add_library(gpurun_protocol_module STATIC module_calls.cc image_bundle.cc ${module_sources})
set_source_files_properties(${module_sources} PROPERTIES COMPILE_OPTIONS "-w")
target_link_libraries(gpurun_protocol_module PUBLIC gpurun_base gpurun_driver_facts
                      PRIVATE CapnProto::capnp gpurun_options)
