# gpurun_nvml_library(TARGET SOURCES ... [LIBRARIES ...]): a libnvidia-ml.so.1 with the answers of
# the nvml_source() that SOURCES define (driver_abi/nvml_source.h). OUTPUT_DIRECTORY properties on
# TARGET choose its place.
set(GPURUN_NVML_DIR "${CMAKE_CURRENT_LIST_DIR}" CACHE INTERNAL "the NVML front")
set(GPURUN_NVML_REFUSED "${CMAKE_BINARY_DIR}/generated/driver_abi/nvml_refused.cc" CACHE INTERNAL "")
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/generated/driver_abi")
add_custom_command(
  OUTPUT "${GPURUN_NVML_REFUSED}"
  COMMAND ${Python3_EXECUTABLE} -B "${GPURUN_NVML_DIR}/nvml_refused.py"
          "${GPURUN_NVML_DIR}/nvml.toml" "${GPURUN_NVML_REFUSED}"
  DEPENDS "${GPURUN_NVML_DIR}/nvml_refused.py" "${GPURUN_NVML_DIR}/nvml.toml"
  VERBATIM)
# An object library compiles the front once and puts all of it into every library.
add_library(gpurun_nvml_front OBJECT
  "${GPURUN_NVML_DIR}/nvml_entry.cc" "${GPURUN_NVML_DIR}/nvml_device.cc" "${GPURUN_NVML_REFUSED}")
target_link_libraries(gpurun_nvml_front PRIVATE gpurun_options)

function(gpurun_nvml_library target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(${target} SHARED ${ARG_SOURCES} $<TARGET_OBJECTS:gpurun_nvml_front>)
  target_link_libraries(${target} PRIVATE gpurun_options ${ARG_LIBRARIES})
  target_link_options(${target} PRIVATE
    -Wl,-Bsymbolic -Wl,--version-script=${GPURUN_NVML_DIR}/nvml.map)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME nvidia-ml SOVERSION 1 LINK_DEPENDS "${GPURUN_NVML_DIR}/nvml.map")
endfunction()
