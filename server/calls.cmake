# What each call does on the worker: the driver, generic dispatch, custom handlers.
add_library(gpurun_server_driver STATIC cuda_driver.cc driver_functions.cc foreign_call.cc snapshot.cc)
target_link_libraries(gpurun_server_driver PUBLIC gpurun_base gpurun_driver_abi gpurun_protocol_call
                      PkgConfig::LIBFFI ${CMAKE_DL_LIBS} PRIVATE gpurun_options)
# Needs the executor's Call and HandleTable from whoever links it.
add_library(gpurun_server_dispatch STATIC dispatch.cc synchronize.cc handlers/handlers.cc handlers/primary_context.cc
            handlers/graph_nodes.cc handlers/host_gates.cc handlers/image_store.cc handlers/kernel_facts.cc handlers/launches.cc
            handlers/memory_pool.cc
            handlers/module_loads.cc handlers/module_names.cc handlers/module_state.cc)
target_link_libraries(gpurun_server_dispatch PUBLIC gpurun_server_driver gpurun_protocol_module
                      PRIVATE gpurun_options spdlog::spdlog)
