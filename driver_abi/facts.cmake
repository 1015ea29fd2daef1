# Driver facts: what programs require of libcuda beyond the public API: code images, export tables,
# the integrity value, NVML. The client library and the emulated device use them.
add_library(gpurun_driver_facts STATIC
  ${CMAKE_CURRENT_LIST_DIR}/state/context_storage.cc
  ${CMAKE_CURRENT_LIST_DIR}/state/export_tables.cc
  ${CMAKE_CURRENT_LIST_DIR}/cubin_with_ptx.cc
  ${CMAKE_CURRENT_LIST_DIR}/elf_sections.cc
  ${CMAKE_CURRENT_LIST_DIR}/fatbin.cc
  ${CMAKE_CURRENT_LIST_DIR}/host_object.cc
  ${CMAKE_CURRENT_LIST_DIR}/image_length.cc
  ${CMAKE_CURRENT_LIST_DIR}/semantics/integrity.cc
  ${CMAKE_CURRENT_LIST_DIR}/state/library_view.cc
  ${CMAKE_CURRENT_LIST_DIR}/linked_image.cc
  ${CMAKE_CURRENT_LIST_DIR}/ptx_selection.cc
  ${CMAKE_CURRENT_LIST_DIR}/tile_ir_layout.cc)
target_link_libraries(gpurun_driver_facts PUBLIC gpurun_driver_abi gpurun_base gpurun_options
                      PRIVATE gpurun_lz4 gpurun_zstd ${CMAKE_DL_LIBS})
# Orders the generation of driver_abi/cuda_abi.h first.
add_dependencies(gpurun_driver_facts gpurun_apigen)
# What a library beside the client library asks it for.
add_library(gpurun_client_view STATIC ${CMAKE_CURRENT_LIST_DIR}/client_view.cc)
target_link_libraries(gpurun_client_view PUBLIC gpurun_driver_abi gpurun_base gpurun_options PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(gpurun_client_view gpurun_apigen)
