# What the client knows by itself: devices, contexts, modules, memory.
add_library(gpurun_client_state STATIC credit_book.cc device_attribute_mask.cc device_snapshot.cc free_ranges.cc
            remembered_answers.cc)
target_link_libraries(gpurun_client_state PUBLIC gpurun_base gpurun_driver_abi gpurun_protocol_call
                      PRIVATE gpurun_options)
