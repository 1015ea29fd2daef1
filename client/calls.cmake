# What the client knows by itself: devices, contexts, modules, memory.
add_library(gpurun_client_state STATIC session/credit_book.cc devices/device_attribute_mask.cc devices/device_snapshot.cc host_memory/arena_blocks.cc process/free_ranges.cc
            devices/remembered_answers.cc)
target_link_libraries(gpurun_client_state PUBLIC gpurun_base gpurun_driver_abi gpurun_protocol_call
                      PRIVATE gpurun_options)
