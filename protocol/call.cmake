# The generic codec of generated rows: protocol/calls/call.h.
set(CAPNPC_SRC_PREFIX "${CMAKE_SOURCE_DIR}")
set(CAPNPC_OUTPUT_DIR "${CMAKE_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${CAPNPC_OUTPUT_DIR}")
capnp_generate_cpp(call_sources call_headers "${CMAKE_CURRENT_SOURCE_DIR}/calls/call.capnp"
                   "${CMAKE_CURRENT_SOURCE_DIR}/calls/snapshot.capnp")
add_library(gpurun_protocol_call STATIC calls/call.cc ${call_sources})
set_source_files_properties(${call_sources} PROPERTIES COMPILE_OPTIONS "-w")
target_link_libraries(gpurun_protocol_call PUBLIC gpurun_base PUBLIC CapnProto::capnp PRIVATE gpurun_options)
# Code images and kernels: protocol/calls/module_calls.h, protocol/calls/image_bundle.h.
capnp_generate_cpp(module_sources module_headers "${CMAKE_CURRENT_SOURCE_DIR}/calls/module.capnp")
add_library(gpurun_protocol_module STATIC calls/link_calls.cc calls/module_calls.cc calls/image_bundle.cc ${module_sources})
set_source_files_properties(${module_sources} PROPERTIES COMPILE_OPTIONS "-w")
# Files kept on a disk are only for builds with the same schema and the same code.
set(format "")
foreach(source calls/module.capnp calls/module_calls.h calls/module_calls.cc)
  file(SHA256 "${CMAKE_CURRENT_SOURCE_DIR}/${source}" digest)
  string(APPEND format "${digest}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
endforeach()
string(SHA256 format "${format}")
set_source_files_properties(calls/module_calls.cc PROPERTIES COMPILE_DEFINITIONS GPURUN_OUTCOME_FORMAT="${format}")
target_link_libraries(gpurun_protocol_module PUBLIC gpurun_base gpurun_driver_facts
                      PRIVATE CapnProto::capnp gpurun_options)
