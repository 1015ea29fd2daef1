# Mirror model: the session model's code, with the copies and twins of both ends.
add_library(gpurun_model_mirror STATIC
  mirror_program.cc mirror_worker.cc "${CMAKE_SOURCE_DIR}/protocol/calls/host_mirror.cc"
  "${CMAKE_SOURCE_DIR}/server/handlers/memory/host_mirror.cc")
# The worker's handlers need more than the model has. The linker leaves them out.
target_compile_options(gpurun_model_mirror PRIVATE -ffunction-sections)
target_link_options(gpurun_model_mirror PUBLIC -Wl,--gc-sections)
target_link_libraries(gpurun_model_mirror PRIVATE gpurun_options gpurun_model_code
                      PUBLIC gpurun_model_session)
add_library(gpurun_model_mirror_scenarios OBJECT mirror_model.cc any_mirror_program.cc)

gpurun_model_test(mirror_model LIBRARY gpurun_model_mirror SCENARIOS gpurun_model_mirror_scenarios)
gpurun_flaws(mirror gpurun_model_mirror gpurun_model_mirror_scenarios)
