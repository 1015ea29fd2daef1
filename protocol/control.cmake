# Control frames and their proofs: protocol/control.h.
add_library(gpurun_protocol_control STATIC proof.cc)
target_link_libraries(gpurun_protocol_control PUBLIC gpurun_base PRIVATE CapnProto::capnp gpurun_options)
