# Tests of gpurun_driver_facts.
gpurun_test(driver_facts_test unit TIMEOUT 120
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/cubin_with_ptx_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/error_codes_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/state/export_tables_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/fatbin_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/host_object_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/image_length_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/semantics/integrity_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/ptx_selection_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/tile_ir_layout_test.cc
  LIBRARIES gpurun_driver_facts gpurun_lz4 gpurun_zstd)
add_library(gpurun_test_tables MODULE ${CMAKE_CURRENT_LIST_DIR}/state/tables_library.cc)
target_link_libraries(gpurun_test_tables PRIVATE gpurun_driver_facts gpurun_options)
add_dependencies(driver_facts_test gpurun_test_tables)
target_compile_definitions(driver_facts_test PRIVATE
  GPURUN_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  GPURUN_TEST_TABLES_LIBRARY="$<TARGET_FILE:gpurun_test_tables>")
if(GPURUN_NVCC)
  target_compile_definitions(driver_facts_test PRIVATE GPURUN_TEST_NVCC="${GPURUN_NVCC}")
endif()

gpurun_nvml_library(gpurun_test_nvml SOURCES ${CMAKE_CURRENT_LIST_DIR}/nvml_test_source.cc)
gpurun_test(nvml_test unit ONE_THREAD SOURCES ${CMAKE_CURRENT_LIST_DIR}/nvml_test.cc
  LIBRARIES ${CMAKE_DL_LIBS})
add_dependencies(nvml_test gpurun_test_nvml)
target_compile_definitions(nvml_test PRIVATE GPURUN_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  GPURUN_TEST_NVML_LIBRARY="$<TARGET_FILE:gpurun_test_nvml>")
