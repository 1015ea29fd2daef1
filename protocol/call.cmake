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
add_library(gpurun_protocol_module STATIC link_calls.cc module_calls.cc image_bundle.cc ${module_sources})
set_source_files_properties(${module_sources} PROPERTIES COMPILE_OPTIONS "-w")
# Files kept on a disk are only for builds with the same schema and the same code.
set(format "")
foreach(source module.capnp module_calls.h module_calls.cc)
  file(SHA256 "${CMAKE_CURRENT_SOURCE_DIR}/${source}" digest)
  string(APPEND format "${digest}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
endforeach()
string(SHA256 format "${format}")
set_source_files_properties(module_calls.cc PROPERTIES COMPILE_DEFINITIONS GPURUN_OUTCOME_FORMAT="${format}")
target_link_libraries(gpurun_protocol_module PUBLIC gpurun_base gpurun_driver_facts
                      PRIVATE CapnProto::capnp gpurun_options)
