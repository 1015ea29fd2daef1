# Carrier model: carried connections, with the rings of shared memory.
set(carrier_sources "")
foreach(source carrier/connection carrier/control carrier/receiver carrier/sender carrier/watch shm/ring
               sockets/address sockets/connection sockets/descriptor sockets/watch)
  list(APPEND carrier_sources "${CMAKE_SOURCE_DIR}/transport/${source}.cc")
endforeach()
add_library(gpurun_model_carrier STATIC ${carrier_sources})
target_link_libraries(gpurun_model_carrier PRIVATE gpurun_options gpurun_model_code PUBLIC gpurun_base)
add_library(gpurun_model_carrier_scenarios OBJECT carrier_model.cc)

gpurun_model_test(carrier_model LIBRARY gpurun_model_carrier SCENARIOS gpurun_model_carrier_scenarios)
gpurun_flaws(carrier gpurun_model_carrier gpurun_model_carrier_scenarios)
