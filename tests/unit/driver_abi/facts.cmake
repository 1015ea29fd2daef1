# Tests of gpurun_driver_facts.
gpurun_test(driver_facts_test unit TIMEOUT 120
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fatbin_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/image_length_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/ptx_selection_test.cc
  LIBRARIES gpurun_driver_facts PkgConfig::LZ4 PkgConfig::ZSTD)
if(GPURUN_NVCC)
  target_compile_definitions(driver_facts_test PRIVATE GPURUN_TEST_NVCC="${GPURUN_NVCC}")
endif()
