# What each call does on the worker: the driver, generic dispatch, custom handlers.
add_library(gpurun_server_driver STATIC cuda_driver.cc snapshot.cc)
target_link_libraries(gpurun_server_driver PUBLIC gpurun_base gpurun_driver_abi gpurun_protocol_call
                      ${CMAKE_DL_LIBS} PRIVATE gpurun_options)
